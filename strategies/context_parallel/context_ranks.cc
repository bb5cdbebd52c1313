#include "strategies/context_parallel/context_ranks.h"

#include "core/base/status.h"

namespace lockstep {

void ContextRanks::SumGradient(const Tensor& gradient) {
  ThrowIfError(ranks_.AllReduce(gradient, gradient, ReduceOp::kSum, kTokenGradients).Wait());
}

}  // namespace lockstep
