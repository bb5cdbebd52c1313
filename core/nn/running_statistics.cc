#include "core/nn/running_statistics.h"

#include <utility>

#include "glog/logging.h"

namespace lockstep {

void RunningStatistics::Materialize(Kernels& kernels) {
  mean = kernels.Empty({held_channels()}, DType::kF32, MemoryClass::kParameters);
  variance = kernels.Empty({held_channels()}, DType::kF32, MemoryClass::kParameters);
  kernels.Fill(mean, 0);
  kernels.Fill(variance, 1);
  if (frozen) return;
  sums = kernels.Empty({3, held_channels()}, DType::kF32, MemoryClass::kParameters);
  kernels.Fill(sums, 0);
  if (momentum) return;
  constexpr int64_t kNone = 0;
  updates = kernels.Empty({1}, DType::kI64, MemoryClass::kParameters);
  kernels.CopyFromHost(&kNone, updates);
}

void RunningStatistics::Gather(Kernels& kernels, const Tensor& batch_mean,
                               const Tensor& batch_variance, int64_t micro_batch_rows) {
  if (!gathered_) rows = micro_batch_rows;
  CHECK_LE(micro_batch_rows, rows) << name << ": a shard begins with its largest micro-batch";
  AddToSums(kernels, batch_mean, batch_variance,
            static_cast<float>(micro_batch_rows) / static_cast<float>(rows));
}

void RunningStatistics::AddToSums(Kernels& kernels, const Tensor& batch_mean,
                                  const Tensor& batch_variance, float weight) {
  const Write write = std::exchange(gathered_, true) ? Write::kAccumulate : Write::kOverwrite;
  kernels.AddStatistics(batch_mean, batch_variance, weight, write, sums);
}

void RunningStatistics::Update(Kernels& kernels, double weight) {
  CHECK_GT(rows, 0) << name;
  kernels.UpdateRunningStatistics(sums, weight, rows, NextMomentum(kernels), mean, variance);
  Clear();
}

void RunningStatistics::Follow(Kernels& kernels, const Tensor& statistics,
                               int64_t micro_batch_rows) {
  CHECK_GT(micro_batch_rows, 0) << name;
  kernels.UpdateRunningStatistics(statistics, /*weight=*/1, micro_batch_rows, NextMomentum(kernels),
                                  mean, variance);
}

float RunningStatistics::NextMomentum(Kernels& kernels) {
  if (momentum) return *momentum;
  int64_t count = 0;
  kernels.CopyToHost(updates, &count);
  ++count;
  kernels.CopyFromHost(&count, updates);
  return 1 / static_cast<float>(count);
}

}  // namespace lockstep
