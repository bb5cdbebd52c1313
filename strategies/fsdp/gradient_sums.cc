#include "strategies/fsdp/gradient_sums.h"

#include "absl/types/span.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

// Sums on their way at one time: the next may begin while the one before has not ended.
constexpr size_t kUnderWay = 2;

}  // namespace

void GradientSums::Enter(FsdpUnit& unit) { unit.gradients().Materialize(); }

void GradientSums::Leave(FsdpUnit& unit) {
  if (micro_batch_ + 1 < micro_batches_) return;
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

int64_t GradientSums::PeakBytes(const std::vector<UnitNeeds>& units) const {
  return micro_batches_ > 1 ? AllGradientBytes(units) : PeakGradientBytes(units, kUnderWay);
}

void GradientSums::Advance() {
  FlatGradients& gradients = under_way_.front()->gradients();
  gradients.AwaitReduced();
  over_replicas_.push_back(gradients.ReduceOverReplicas());
  under_way_.pop_front();
}

}  // namespace lockstep
