#include "core/train/stage_pass.h"

#include <utility>

#include "glog/logging.h"

namespace lockstep {

StagePass::StagePass(Stage& stage, int64_t step, int64_t micro_batch)
    : stage_(stage), step_(step), micro_batch_(micro_batch), tape_(stage.rank().kernels) {}

Variables StagePass::Forward(Variables inputs, const Tensor& targets) {
  StepTimer::Scope scope(stage_.rank().timer, Phase::kForward, micro_batch_);
  Pass pass = {.tape = tape_,
               .seed = stage_.seed(),
               .step = step_,
               .micro_batch = micro_batch_,
               .tokens = stage_.Tokens(stage_.micro_batch_size())};
  inputs_ = SlotsOf(inputs);
  Variables outputs = stage_.Run(pass, std::move(inputs));
  if (stage_.is_last()) {
    loss_ = stage_.Loss(pass, std::move(outputs[0]), targets);
    return {};
  }
  outputs_ = SlotsOf(outputs);
  return outputs;
}

std::vector<Tensor> StagePass::Backward(std::vector<Tensor> gradients, const BackwardHooks& hooks) {
  StepTimer::Scope scope(stage_.rank().timer, Phase::kBackward, micro_batch_);
  CHECK_EQ(gradients.size(), outputs_.size());
  std::vector<Tape::Seed> seeds;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    seeds.push_back({Variable(Tensor(), outputs_[i]), std::move(gradients[i])});
  }
  tape_.OnLeafReady(hooks.leaf_ready);
  hooks.before(tape_);
  tape_.Backward(std::move(seeds));
  if (stage_.is_last()) stage_.AddLoss(loss_);
  std::vector<Tensor> of_inputs;
  for (const auto& slot : inputs_) of_inputs.push_back(slot ? slot->Take() : Tensor());
  return of_inputs;
}

StagePass::Slots StagePass::SlotsOf(const Variables& variables) {
  Slots slots;
  for (const Variable& variable : variables) slots.push_back(variable.gradient);
  return slots;
}

EvaluationPass::EvaluationPass(Stage& stage, int64_t samples)
    : stage_(stage),
      tape_(stage.rank().kernels, Tape::Recording::kOff),
      pass_{.tape = tape_,
            .mode = Pass::Mode::kEvaluate,
            .seed = stage.seed(),
            .tokens = stage.Tokens(samples)} {}

Variables EvaluationPass::Forward(Variables inputs) { return stage_.Run(pass_, std::move(inputs)); }

EvaluationSums EvaluationPass::Score(const Variable& logits, const Tensor& targets) {
  return stage_.Score(pass_, logits, targets);
}

}  // namespace lockstep
