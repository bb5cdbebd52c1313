#include "core/run/strategy/stage_pass.h"

#include <utility>

#include "core/nn/loss.h"
#include "core/nn/positions.h"
#include "core/nn/probe.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// The positions of this rank's tokens in their documents; undefined where samples are not packed.
Tensor PositionsIn(Kernels& kernels, const TokenOrder& tokens, const Tensor& documents) {
  if (!documents.defined()) return Tensor();
  return PositionsInDocuments(kernels, tokens, documents);
}

// Runs blocks between what other ranges hand on and what this one hands on.
StageVariables RunBetween(LocalModel& local_model, Pass& pass, const BlockRange& blocks,
                          const SkipEnds& skips, StageVariables inputs) {
  CHECK_EQ(inputs.skips.size(), skips.in.size());
  for (size_t i = 0; i < skips.in.size(); ++i) {
    pass.skips.Put(skips.in[i].name, std::move(inputs.skips[i]));
  }
  StageVariables outputs = {.line = std::move(inputs.line)};
  if (blocks.begin == 0 && !pass.is_recomputing()) {
    ProbeValue(pass, kProbedInputs, outputs.line[0].value);
  }
  for (int64_t i = blocks.begin; i < blocks.end; ++i) {
    outputs.line = local_model.model().blocks[i]->Run(pass, std::move(outputs.line));
  }
  for (const SkipPath& skip : skips.out) outputs.skips.push_back(pass.skips.Take(skip.name));
  CHECK(pass.skips.empty());
  return outputs;
}

}  // namespace

StagePass::StagePass(LocalModel& local_model, const BlockRange& blocks, int64_t step,
                     int64_t micro_batch, Activations activations)
    : local_model_(local_model),
      blocks_(blocks),
      skips_(SkipEndsOf(local_model.model(), blocks)),
      step_(step),
      micro_batch_(micro_batch),
      activations_(activations) {}

StageVariables StagePass::Forward(StageVariables inputs, const Batch& batch) {
  StepTimer::Scope scope(local_model_.rank().timer, Phase::kForward, micro_batch_);
  inputs_ = SlotsOf(inputs.line);
  skips_in_ = SlotsOf(inputs.skips);
  documents_ = batch.documents;
  const Tensor& targets = batch.targets;
  if (local_model_.IsLast(blocks_)) {
    local_model_.CountTargets(batch);
    loss_in_runs_ = local_model_.RunsOfLoss(targets);
  }
  if (activations_ == Activations::kKeep) {
    return RunRecorded(Pass::Replay::kNone, std::move(inputs), targets);
  }
  again_ = {inputs, targets};
  Pass pass = Begin(Tape::Recording::kForgetful, Pass::Replay::kCheckpointing);
  const LossInRuns no_loss = {};
  if (loss_in_runs_) pass.loss_in_runs = &no_loss;
  StageVariables outputs = RunBetween(local_model_, pass, blocks_, skips_, std::move(inputs));
  return local_model_.IsLast(blocks_) ? StageVariables() : outputs;
}

void StagePass::Recompute() {
  if (!again_) return;
  StepTimer::Scope scope(local_model_.rank().timer, Phase::kBackward, micro_batch_);
  Again again = *std::exchange(again_, std::nullopt);
  RunRecorded(Pass::Replay::kRecomputing, std::move(again.inputs), again.targets);
}

void StagePass::BackwardWeights() {
  StepTimer::Scope scope(local_model_.rank().timer, Phase::kBackward, micro_batch_);
  tape_->RunDeferred();
}

Pass StagePass::Begin(Tape::Recording recording, Pass::Replay replay) {
  const TokenOrder tokens = local_model_.Tokens(local_model_.samples_of(micro_batch_));
  tape_ = std::make_unique<Tape>(local_model_.rank().kernels, recording,
                                 tokens.leaves > 1 ? tokens.leaf_rows() : 0);
  return {.tape = *tape_,
          .seed = local_model_.seed(),
          .step = step_,
          .micro_batch = micro_batch_,
          .loss_factor = local_model_.loss_factor(),
          .tokens = tokens,
          .positions = PositionsIn(local_model_.rank().kernels, tokens, documents_),
          .documents = documents_,
          .context = local_model_.model().context,
          .replay = replay,
          .sequence = local_model_.model().sequence,
          .probe = PassProbeOf(local_model_.rank()),
          .routing = RoutingNotesOf(local_model_.rank()),
          .loss_in_runs = loss_in_runs_ ? &*loss_in_runs_ : nullptr};
}

StageVariables StagePass::RunRecorded(Pass::Replay replay, StageVariables inputs,
                                      const Tensor& targets) {
  Pass pass = Begin(Tape::Recording::kOn, replay);
  StageVariables outputs = RunBetween(local_model_, pass, blocks_, skips_, std::move(inputs));
  if (local_model_.IsLast(blocks_)) {
    loss_ = local_model_.Loss(pass, std::move(outputs.line[0]), targets);
    ProbeValue(pass, kProbedTargets, targets);
    ProbeValue(pass, kProbedLosses, loss_.losses);
    return {};
  }
  outputs_ = SlotsOf(outputs.line);
  skips_out_ = SlotsOf(outputs.skips);
  return outputs;
}

StageGradients StagePass::Backward(StageGradients gradients, const BackwardHooks& hooks,
                                   Tape::Extent extent) {
  Recompute();
  StepTimer::Scope scope(local_model_.rank().timer, Phase::kBackward, micro_batch_);
  std::vector<Tape::Seed> seeds;
  const auto seed = [&seeds](const Slots& slots, std::vector<Tensor>& of_slots, size_t i) {
    if (of_slots[i].defined()) {
      seeds.push_back({Variable(Tensor(), slots[i]), std::move(of_slots[i])});
    }
  };
  // As gradients add up where all blocks are in one place: from the block that runs last.
  CHECK_EQ(gradients.skips.size(), skips_out_.size());
  for (size_t i = skips_out_.size(); i-- > 0;) seed(skips_out_, gradients.skips, i);
  CHECK_EQ(gradients.line.size(), outputs_.size());
  for (size_t i = 0; i < outputs_.size(); ++i) seed(outputs_, gradients.line, i);
  tape_->OnLeafReady(hooks.leaf_ready);
  hooks.before(*tape_);
  tape_->Backward(std::move(seeds), extent);
  if (local_model_.IsLast(blocks_)) local_model_.AddLoss(loss_);
  return {.line = Take(inputs_), .skips = Take(skips_in_)};
}

StagePass::Slots StagePass::SlotsOf(const Variables& variables) {
  Slots slots;
  for (const Variable& variable : variables) slots.push_back(variable.gradient);
  return slots;
}

std::vector<Tensor> StagePass::Take(const Slots& slots) {
  std::vector<Tensor> gradients;
  for (const auto& slot : slots) gradients.push_back(slot ? slot->Take() : Tensor());
  return gradients;
}

StageVariables EvaluateStage(LocalModel& local_model, const BlockRange& blocks, int64_t samples,
                             StageVariables inputs, const Batch& batch, EvaluationSums& sums) {
  Kernels& kernels = local_model.rank().kernels;
  const TokenOrder tokens = local_model.Tokens(samples);
  const Tensor& targets = batch.targets;
  Tape tape(kernels, Tape::Recording::kOff);
  int64_t correct = 0;
  const LossInRuns in_runs = {
      .rows = local_model.loss_rows(), .targets = targets, .correct = &correct};
  const bool is_in_runs = local_model.IsLast(blocks) && in_runs.rows > 0;
  Pass pass = {.tape = tape,
               .mode = Pass::Mode::kEvaluate,
               .seed = local_model.seed(),
               .tokens = tokens,
               .positions = PositionsIn(kernels, tokens, batch.documents),
               .documents = batch.documents,
               .context = local_model.model().context,
               .sequence = local_model.model().sequence,
               .routing = RoutingNotesOf(local_model.rank()),
               .loss_in_runs = is_in_runs ? &in_runs : nullptr};
  StageVariables outputs = RunBetween(local_model, pass, blocks,
                                      SkipEndsOf(local_model.model(), blocks), std::move(inputs));
  if (!local_model.IsLast(blocks)) return outputs;
  if (is_in_runs) {
    sums = {.loss = kernels.Sum(outputs.line[0].value), .correct = correct};
    return {};
  }
  const Variable& logits = outputs.line[0];
  const CrossEntropy result = SoftmaxCrossEntropy(pass, logits, targets, 1.0f);
  sums = {.loss = kernels.Sum(result.losses), .correct = CountCorrect(pass, logits.value, targets)};
  return {};
}

}  // namespace lockstep
