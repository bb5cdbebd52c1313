#include "strategies/data_parallel/gradient_sums.h"

#include "absl/types/span.h"
#include "core/base/status.h"

namespace lockstep {

void GradientSums::Begin(FsdpUnit& unit) {
  if (under_way_.size() == kUnderWay) Advance();
  unit.gradients().Reduce();
  under_way_.push_back(&unit);
}

void GradientSums::Await() {
  while (!under_way_.empty()) Advance();
  ThrowIfError(WaitAll(absl::MakeSpan(over_replicas_)));
  over_replicas_.clear();
}

void GradientSums::Advance() {
  FlatGradients& gradients = under_way_.front()->gradients();
  gradients.AwaitReduced();
  over_replicas_.push_back(gradients.ReduceOverReplicas());
  under_way_.pop_front();
}

}  // namespace lockstep
