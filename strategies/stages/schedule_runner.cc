#include "strategies/stages/schedule_runner.h"

#include <algorithm>

#include "glog/logging.h"

namespace lockstep {

ScheduleRunner::ScheduleRunner(LocalModel& local_model, const StagePlan& plan,
                               const Schedule& schedule, int rank, Checkpointing checkpointing,
                               BatchUse batch_use, StageLinks& links)
    : local_model_(local_model),
      plan_(plan),
      schedule_(schedule),
      actions_(schedule.ranks[rank]),
      checkpointing_(checkpointing),
      batch_use_(batch_use),
      links_(links) {
  CHECK_EQ(schedule.stages(), plan.size());
}

void ScheduleRunner::Run(int64_t step, absl::Span<const int64_t> micro_batches, int64_t of_shard,
                         BatchSource& batches, const StageHooks& hooks) {
  CHECK_EQ(static_cast<int64_t>(micro_batches.size()), schedule_.micro_batches);
  step_ = step;
  micro_batches_ = micro_batches;
  of_shard_ = of_shard;
  batches_ = &batches;
  hooks_ = &hooks;
  expected_ = 0;
  fetched_ = 0;
  for (size_t i = 0; i < actions_.size(); ++i) {
    while (expected_ < std::min(i + 2, actions_.size())) Expect(expected_++);
    const Action& action = actions_[i];
    Enter(StepPlace::Kind::kAction, action);
    if (action.kind == ActionKind::kForward) Forward(action);
    if (ReachesInputs(action.kind)) Backward(action);
    if (action.kind == ActionKind::kWeightGradient) {
      passes_.at(Place(action.stage, action.micro_batch)).BackwardWeights();
    }
    if (EndsBackward(action.kind)) End(action);
  }
  CHECK(passes_.empty() && kept_.empty());
  Enter(StepPlace::Kind::kBetween, {});
  links_.AwaitSent();
}

EvaluationSums ScheduleRunner::Evaluate(const Batch& batch) {
  const BatchKind kind = {.mode = Pass::Mode::kEvaluate,
                          .samples = local_model_.SamplesIn(batch.inputs)};
  EvaluationSums sums;
  for (int stage = 0; stage < plan_.size(); ++stage) {
    if (&actions_ != &schedule_.ranks[plan_.rank_of_stage[stage]]) continue;
    StageVariables inputs = IsFirst(stage)
                                ? StageVariables{.line = local_model_.Enter(batch.inputs)}
                                : links_.TakeInputs(stage, kind);
    const StageVariables outputs = EvaluateStage(local_model_, plan_.stages[stage], kind.samples,
                                                 std::move(inputs), batch, sums);
    if (!IsLast(stage)) links_.SendOutputs(stage, kind, outputs);
  }
  links_.AwaitSent();
  return sums;
}

// Tells the recorder of a rehearsal that an action begins.
void ScheduleRunner::Enter(StepPlace::Kind kind, const Action& action) {
  StepRecorder* const recorder = local_model_.rank().recorder;
  if (recorder == nullptr) return;
  recorder->Enter({.kind = kind,
                   .action = static_cast<int>(action.kind),
                   .stage = action.stage,
                   .micro_batch = action.micro_batch});
}

void ScheduleRunner::Expect(size_t index) {
  const auto& [kind, stage, micro_batch] = actions_[index];
  Enter(StepPlace::Kind::kExpect, actions_[index]);
  if (kind == ActionKind::kForward) {
    links_.ExpectInputs(stage, KindOf(micro_batch));
  } else if (ReachesInputs(kind)) {
    links_.ExpectGradients(stage, KindOf(micro_batch));
  }
}

void ScheduleRunner::Forward(const Action& action) {
  const auto [kind, stage, micro_batch] = action;
  Batch batch;
  if (TakesBatch(stage)) batch = TakeBatch(micro_batch);
  StageVariables inputs = IsFirst(stage) ? StageVariables{.line = local_model_.Enter(batch.inputs)}
                                         : links_.TakeInputs(stage, KindOf(micro_batch));
  const auto [at, is_new] =
      passes_.try_emplace(Place(stage, micro_batch), local_model_, plan_.stages[stage], step_,
                          micro_batches_[micro_batch],
                          ActivationsOf(micro_batch, schedule_.micro_batches, checkpointing_));
  CHECK(is_new);
  peak_in_flight_ = std::max(peak_in_flight_, static_cast<int>(passes_.size()));
  const StageVariables outputs = at->second.Forward(std::move(inputs), batch);
  hooks_->forwarded(stage, micro_batches_[micro_batch]);
  if (!IsLast(stage)) links_.SendOutputs(stage, KindOf(micro_batch), outputs);
}

void ScheduleRunner::Backward(const Action& action) {
  const auto [kind, stage, micro_batch] = action;
  StagePass& pass = passes_.at(Place(stage, micro_batch));
  pass.Recompute();  // before the gradients have come
  StageGradients gradients;
  if (!IsLast(stage)) gradients = links_.TakeGradients(stage, KindOf(micro_batch));
  const BackwardHooks hooks =
      EndsShard(micro_batch) ? hooks_->completing(stage, ShardOf(micro_batch)) : BackwardHooks();
  const StageGradients of_inputs =
      pass.Backward(std::move(gradients), hooks,
                    kind == ActionKind::kBackward ? Tape::Extent::kAll : Tape::Extent::kInputsOnly);
  if (!IsFirst(stage)) links_.SendGradients(stage, KindOf(micro_batch), of_inputs);
}

void ScheduleRunner::End(const Action& action) {
  const auto [kind, stage, micro_batch] = action;
  passes_.erase(Place(stage, micro_batch));
  if (EndsShard(micro_batch)) hooks_->completed(stage, ShardOf(micro_batch));
}

int ScheduleRunner::UsesOfBatch() const {
  int uses = 0;
  for (int stage = 0; stage < plan_.size(); ++stage) {
    const bool is_here = &actions_ == &schedule_.ranks[plan_.rank_of_stage[stage]];
    if (is_here && TakesBatch(stage)) ++uses;
  }
  return uses;
}

Batch ScheduleRunner::TakeBatch(int micro_batch) {
  while (fetched_ <= micro_batch) kept_[fetched_++] = {batches_->Next(), UsesOfBatch()};
  Fetched& fetched = kept_.at(micro_batch);
  const Batch batch = fetched.batch;
  if (--fetched.uses == 0) kept_.erase(micro_batch);
  return batch;
}

BatchKind ScheduleRunner::KindOf(int micro_batch) const {
  return {.samples = local_model_.samples_of(micro_batches_[micro_batch])};
}

}  // namespace lockstep
