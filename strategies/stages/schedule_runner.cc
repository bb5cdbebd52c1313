#include "strategies/stages/schedule_runner.h"

#include <algorithm>

#include "glog/logging.h"

namespace lockstep {
namespace {

bool ComputesWeightGradients(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kWeightGradient;
}

bool ComputesInputGradients(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kInputGradient;
}

// By stage, the micro-batch whose backward completes the gradients of parameters. Where backwards
// are halved, some of them are computed in the first half: then it must be the last of both.
std::vector<int> CompletingMicroBatches(const Schedule& schedule,
                                        const std::vector<Action>& actions) {
  std::vector<int> inputs(schedule.stages(), -1), weights(schedule.stages(), -1);
  for (const Action& action : actions) {
    if (ComputesInputGradients(action.kind)) inputs[action.stage] = action.micro_batch;
    if (ComputesWeightGradients(action.kind)) weights[action.stage] = action.micro_batch;
  }
  for (size_t stage = 0; stage < inputs.size(); ++stage) {
    if (inputs[stage] != weights[stage]) inputs[stage] = -1;
  }
  return inputs;
}

}  // namespace

ScheduleRunner::ScheduleRunner(LocalModel& local_model, const StagePlan& plan,
                               const Schedule& schedule, int rank, Checkpointing checkpointing,
                               StageLinks& links)
    : local_model_(local_model),
      plan_(plan),
      schedule_(schedule),
      actions_(schedule.ranks[rank]),
      checkpointing_(checkpointing),
      links_(links),
      completing_(CompletingMicroBatches(schedule, actions_)) {
  CHECK_EQ(schedule.stages(), plan.size());
}

void ScheduleRunner::Run(int64_t step, int64_t first, BatchSource& batches,
                         const StageHooks& hooks) {
  step_ = step;
  first_ = first;
  batches_ = &batches;
  hooks_ = &hooks;
  expected_ = 0;
  fetched_ = 0;
  to_come_.assign(plan_.size(), schedule_.micro_batches);
  for (size_t i = 0; i < actions_.size(); ++i) {
    while (expected_ < std::min(i + 2, actions_.size())) Expect(expected_++);
    const Action& action = actions_[i];
    switch (action.kind) {
      case ActionKind::kForward:
        Forward(action);
        break;
      case ActionKind::kBackward:
      case ActionKind::kInputGradient:
        Backward(action);
        break;
      case ActionKind::kWeightGradient:
        WeightGradient(action);
        break;
    }
  }
  CHECK(passes_.empty() && kept_.empty());
  links_.AwaitSent();
}

EvaluationSums ScheduleRunner::Evaluate(const Batch& batch) {
  const BatchKind kind = {.mode = Pass::Mode::kEvaluate, .samples = batch.inputs.shape()[0]};
  EvaluationSums sums;
  for (int stage = 0; stage < plan_.size(); ++stage) {
    if (&actions_ != &schedule_.ranks[plan_.rank_of_stage[stage]]) continue;
    EvaluationPass pass(local_model_, plan_.stages[stage], kind.samples);
    const StageVariables outputs =
        pass.Forward(IsFirst(stage) ? StageVariables{.line = local_model_.Enter(batch.inputs)}
                                    : links_.TakeInputs(stage, kind));
    if (IsLast(stage)) {
      sums = pass.Score(outputs.line[0], batch.targets);
    } else {
      links_.SendOutputs(stage, kind, outputs);
    }
  }
  links_.AwaitSent();
  return sums;
}

void ScheduleRunner::Expect(size_t index) {
  const auto& [kind, stage, micro_batch] = actions_[index];
  if (kind == ActionKind::kForward) {
    links_.ExpectInputs(stage, KindOf(micro_batch));
  } else if (ComputesInputGradients(kind)) {
    links_.ExpectGradients(stage, KindOf(micro_batch));
  }
}

void ScheduleRunner::Forward(const Action& action) {
  const auto [kind, stage, micro_batch] = action;
  Batch batch;
  if (IsFirst(stage) || IsLast(stage)) batch = TakeBatch(micro_batch);
  StageVariables inputs = IsFirst(stage) ? StageVariables{.line = local_model_.Enter(batch.inputs)}
                                         : links_.TakeInputs(stage, KindOf(micro_batch));
  const auto [at, is_new] = passes_.try_emplace(
      Place(stage, micro_batch), local_model_, plan_.stages[stage], step_, first_ + micro_batch,
      ActivationsOf(micro_batch, schedule_.micro_batches, checkpointing_));
  CHECK(is_new);
  peak_in_flight_ = std::max(peak_in_flight_, static_cast<int>(passes_.size()));
  const StageVariables outputs = at->second.Forward(std::move(inputs), batch.targets);
  if (!IsLast(stage)) links_.SendOutputs(stage, KindOf(micro_batch), outputs);
}

void ScheduleRunner::Backward(const Action& action) {
  const auto [kind, stage, micro_batch] = action;
  StagePass& pass = passes_.at(Place(stage, micro_batch));
  pass.Recompute();  // before the gradients have come
  StageGradients gradients;
  if (!IsLast(stage)) gradients = links_.TakeGradients(stage, KindOf(micro_batch));
  const BackwardHooks hooks =
      completing_[stage] == micro_batch ? hooks_->completing(stage) : BackwardHooks();
  const StageGradients of_inputs = kind == ActionKind::kBackward
                                       ? pass.Backward(std::move(gradients), hooks)
                                       : pass.BackwardInputs(std::move(gradients), hooks);
  if (!IsFirst(stage)) links_.SendGradients(stage, KindOf(micro_batch), of_inputs);
  if (kind == ActionKind::kBackward) End(action);
}

void ScheduleRunner::WeightGradient(const Action& action) {
  passes_.at(Place(action.stage, action.micro_batch)).BackwardWeights();
  End(action);
}

void ScheduleRunner::End(const Action& action) {
  passes_.erase(Place(action.stage, action.micro_batch));
  if (--to_come_[action.stage] == 0) hooks_->completed(action.stage);
}

Batch ScheduleRunner::TakeBatch(int micro_batch) {
  const int uses = (local_model_.has_first() ? 1 : 0) + (local_model_.has_last() ? 1 : 0);
  while (fetched_ <= micro_batch) kept_[fetched_++] = {batches_->Next(), uses};
  Fetched& fetched = kept_.at(micro_batch);
  const Batch batch = fetched.batch;
  if (--fetched.uses == 0 || plan_.size() == 1) kept_.erase(micro_batch);
  return batch;
}

BatchKind ScheduleRunner::KindOf(int micro_batch) const {
  return {.samples = local_model_.samples_of(first_ + micro_batch)};
}

}  // namespace lockstep
