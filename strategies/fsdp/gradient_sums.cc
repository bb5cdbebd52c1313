#include "strategies/fsdp/gradient_sums.h"

#include "absl/types/span.h"
#include "core/base/status.h"

namespace lockstep {

void GradientSums::Enter(FsdpUnit& unit) { unit.gradients().Materialize(); }

void GradientSums::Leave(FsdpUnit& unit) {
  if (!last()) return;
  unit.CompleteGradients();
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
