#include "strategies/fsdp/gradient_sums.h"

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
}

void GradientSums::Advance() {
  under_way_.front()->gradients().AwaitReduced();
  under_way_.pop_front();
}

}  // namespace lockstep
