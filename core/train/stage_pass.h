#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/autograd/operations.h"
#include "core/autograd/tape.h"
#include "core/train/stage.h"

namespace lockstep {

// What a strategy does beside the backward of a micro-batch.
struct BackwardHooks {
  std::function<void(const Tape&)> before = [](const Tape&) {};
  std::function<void(Leaf&)> leaf_ready = nullptr;  // see Tape::OnLeafReady
};

// The way of one micro-batch through a stage: forward, and then backward, once each. A pipeline
// keeps one for each micro-batch in flight. Both count as the phases of their names.
class StagePass {
 public:
  StagePass(Stage& stage, int64_t step, int64_t micro_batch);

  // Runs the blocks. `inputs` come from Stage::Enter, or are the outputs of the stage before;
  // `targets` are read by the last stage only, which has no outputs but the loss.
  Variables Forward(Variables inputs, const Tensor& targets);

  // `gradients` are those of the outputs, in their order, undefined where none has come; none for
  // the last stage. Gradients of parameters and batch statistics add up until the stage's next
  // Clear, and so does the loss. Returns the gradients of the inputs, in their order, undefined
  // where none is needed, or none reached them.
  std::vector<Tensor> Backward(std::vector<Tensor> gradients = {}, const BackwardHooks& hooks = {});

 private:
  using Slots = std::vector<std::shared_ptr<GradientSlot>>;

  static Slots SlotsOf(const Variables& variables);

  Stage& stage_;
  const int64_t step_, micro_batch_;
  Tape tape_;
  Slots inputs_, outputs_;
  CrossEntropy loss_;  // of the last stage
};

// The way of a batch through a stage in evaluation, without gradients.
class EvaluationPass {
 public:
  // `samples`: of the batch.
  EvaluationPass(Stage& stage, int64_t samples);

  // What the blocks make of the inputs; of the last stage, logits.
  Variables Forward(Variables inputs);
  // Of the last stage: what is to be known of them.
  EvaluationSums Score(const Variable& logits, const Tensor& targets);

 private:
  Stage& stage_;
  Tape tape_;
  Pass pass_;
};

}  // namespace lockstep
