#include "strategies/fsdp/gradient_sums.h"

#include "absl/types/span.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

// Sums on their way at one time: the next may begin while the one before has not ended.
constexpr size_t kUnderWay = 2;

}  // namespace

void GradientSums::Enter(FsdpUnit& unit) {
  // What the micro-batch before has left has had all of forward to end.
  while (!under_way_.empty() && under_way_.front().micro_batch != micro_batch_) Advance();
  unit.gradients().Materialize();
}

void GradientSums::Leave(FsdpUnit& unit) {
  if (accumulation_ == Accumulation::kWhole && !IsLast(micro_batch_)) return;
  unit.CompleteGradients();
  if (under_way_.size() == kUnderWay) Advance();
  const bool adds = accumulation_ == Accumulation::kShards && micro_batch_ > 0;
  unit.gradients().Reduce(adds ? Write::kAccumulate : Write::kOverwrite);
  under_way_.push_back({&unit, micro_batch_});
}

void GradientSums::Await() {
  while (!under_way_.empty()) Advance();
  ThrowIfError(WaitAll(absl::MakeSpan(over_replicas_)));
  over_replicas_.clear();
}

int64_t GradientSums::sums_per_step() const {
  return accumulation_ == Accumulation::kShards ? micro_batches_ : 1;
}

int64_t GradientSums::PeakBytes(const std::vector<UnitNeeds>& units) const {
  if (accumulation_ == Accumulation::kWhole && micro_batches_ > 1) return AllGradientBytes(units);
  return PeakGradientBytes(units, kUnderWay,
                           micro_batches_ > 1 ? SumPlace::kOwn : SumPlace::kShard);
}

void GradientSums::Advance() {
  const auto [unit, micro_batch] = under_way_.front();
  unit->gradients().AwaitReduced();
  if (IsLast(micro_batch)) over_replicas_.push_back(unit->gradients().ReduceOverReplicas());
  under_way_.pop_front();
}

}  // namespace lockstep
