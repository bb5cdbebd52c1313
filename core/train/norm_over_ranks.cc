#include "core/train/norm_over_ranks.h"

#include <cstdint>
#include <utility>

#include "core/base/status.h"

namespace lockstep {
namespace {

constexpr char kLabel[] = "norm";

using Axes = std::vector<Communicator*>;

// One axis after the other: largest magnitudes and the bins of SquareSum have no order of sums.
template <typename T>
std::vector<T> Reduce(const Axes& axes, Kernels& kernels, const std::vector<T>& values, DType dtype,
                      ReduceOp op) {
  const auto count = static_cast<int64_t>(values.size());
  const Tensor sum = kernels.Empty({count}, dtype, MemoryClass::kCommunication);
  kernels.CopyFromHost(values.data(), sum);
  for (Communicator* axis : axes) ThrowIfError(axis->AllReduce(sum, sum, op, kLabel).Wait());
  std::vector<T> reduced(values.size());
  kernels.CopyToHost(sum, reduced.data());
  return reduced;
}

}  // namespace

NormReduction NormOverRanks(const Axes& axes, Kernels& kernels) {
  Axes divided = axes;
  std::erase_if(divided, [](const Communicator* axis) { return axis->size() == 1; });
  if (divided.empty()) return {};
  return {.max =
              [divided, &kernels](float local) {
                return Reduce<float>(divided, kernels, {local}, DType::kF32, ReduceOp::kMax)[0];
              },
          .sum =
              [divided, &kernels](SquareSum local) {
                const std::vector<double> bins =
                    Reduce<double>(divided, kernels, {local.bins[0], local.bins[1], local.bins[2]},
                                   DType::kF64, ReduceOp::kSum);
                return SquareSum{{bins[0], bins[1], bins[2]}};
              }};
}

void AddNormTraffic(const Axes& axes, CostPrediction& prediction) {
  for (const Communicator* axis : axes) {
    const double n = axis->size();
    if (n == 1) continue;
    prediction.AddTraffic(Operation::kAllReduce, kLabel,
                          2 * (n - 1) / n * (sizeof(float) + 3 * sizeof(double)));
  }
}

}  // namespace lockstep
