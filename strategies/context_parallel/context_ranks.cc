#include "strategies/context_parallel/context_ranks.h"

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/comm/host_numbers.h"

namespace lockstep {

void ContextRanks::SumGradient(const Tensor& gradient) {
  ThrowIfError(ranks_.AllReduce(gradient, gradient, ReduceOp::kSum, kTokenGradients).Wait());
}

std::vector<int64_t> ContextRanks::GatherNumbers(const std::vector<int64_t>& numbers) {
  std::vector<int64_t> all(numbers.size() * static_cast<size_t>(size()));
  ThrowIfError(lockstep::GatherNumbers(ranks_, numbers, absl::MakeSpan(all), kExpertChoices));
  return all;
}

}  // namespace lockstep
