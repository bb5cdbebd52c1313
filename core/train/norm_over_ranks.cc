#include "core/train/norm_over_ranks.h"

#include <cstdint>
#include <vector>

#include "core/base/status.h"

namespace lockstep {
namespace {

template <typename T>
std::vector<T> Reduce(Communicator& ranks, Kernels& kernels, const std::vector<T>& values,
                      DType dtype, ReduceOp op) {
  const auto count = static_cast<int64_t>(values.size());
  const Tensor sum = kernels.Empty({count}, dtype, MemoryClass::kCommunication);
  kernels.CopyFromHost(values.data(), sum);
  ThrowIfError(ranks.AllReduce(sum, sum, op, "norm").Wait());
  std::vector<T> reduced(values.size());
  kernels.CopyToHost(sum, reduced.data());
  return reduced;
}

}  // namespace

NormReduction NormOverRanks(Communicator& ranks, Kernels& kernels) {
  return {.max =
              [&](float local) {
                return Reduce<float>(ranks, kernels, {local}, DType::kF32, ReduceOp::kMax)[0];
              },
          .sum =
              [&](SquareSum local) {
                const std::vector<double> bins =
                    Reduce<double>(ranks, kernels, {local.bins[0], local.bins[1], local.bins[2]},
                                   DType::kF64, ReduceOp::kSum);
                return SquareSum{{bins[0], bins[1], bins[2]}};
              }};
}

}  // namespace lockstep
