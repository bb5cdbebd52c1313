#include "core/nn/running_statistics.h"

#include <utility>

#include "glog/logging.h"

namespace lockstep {

void RunningStatistics::Materialize(Kernels& kernels) {
  mean = kernels.Empty({held_channels()}, DType::kF32, MemoryClass::kParameters);
  variance = kernels.Empty({held_channels()}, DType::kF32, MemoryClass::kParameters);
  sums = kernels.Empty({3, held_channels()}, DType::kF32, MemoryClass::kParameters);
  kernels.Fill(mean, 0);
  kernels.Fill(variance, 1);
  kernels.Fill(sums, 0);
}

void RunningStatistics::Gather(Kernels& kernels, const Tensor& batch_mean,
                               const Tensor& batch_variance, int64_t micro_batch_rows) {
  rows = micro_batch_rows;
  kernels.AddStatistics(batch_mean, batch_variance,
                        std::exchange(gathered_, true) ? Write::kAccumulate : Write::kOverwrite,
                        sums);
}

void RunningStatistics::Update(Kernels& kernels, int64_t micro_batches) {
  CHECK_GT(rows, 0) << name;
  kernels.UpdateRunningStatistics(sums, micro_batches, rows, momentum, mean, variance);
  Clear();
}

}  // namespace lockstep
