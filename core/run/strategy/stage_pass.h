#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/autograd/operations.h"
#include "core/autograd/tape.h"
#include "core/run/strategy/local_model.h"

namespace lockstep {

// What a range of blocks takes in or hands on: what passes from block to block, and the skips that
// come from other ranges, or go to them, in the order of SkipEnds.
struct StageVariables {
  Variables line;
  Variables skips = {};
};
// Their gradients; undefined where none is needed, or none came.
struct StageGradients {
  std::vector<Tensor> line = {};
  std::vector<Tensor> skips = {};
};

// What a strategy does beside the backward of a micro-batch.
struct BackwardHooks {
  std::function<void(const Tape&)> before = [](const Tape&) {};
  std::function<void(Leaf&)> leaf_ready = nullptr;  // see Tape::OnLeafReady
};

// What is kept from forward to backward: all that gradients are computed from, or the inputs only,
// from which backward makes the rest once more (activation checkpointing).
enum class Activations { kKeep, kRecompute };

// The pass of one micro-batch through a range of blocks: forward, and then backward, once each. A
// pipeline keeps one for each micro-batch in flight. Both count as the phases of their names.
class StagePass {
 public:
  // `blocks` are one of the local model's ranges.
  StagePass(LocalModel& local_model, const BlockRange& blocks, int64_t step, int64_t micro_batch,
            Activations activations = Activations::kKeep);

  // Runs the blocks. `inputs` come from LocalModel::Enter, or are what other ranges hand on. All
  // blocks read the batch's documents. Its targets are read behind the last block only, which has
  // no outputs but the loss.
  StageVariables Forward(StageVariables inputs, const Batch& batch);

  // Where activations were not kept: makes them, which can be done before gradients have come.
  // Backward does so if it was not. Counts as backward.
  void Recompute();

  // `gradients` are those of what Forward handed on; none behind the last block. Gradients of
  // parameters and batch statistics add up until the local model's next Clear, and so does the
  // loss. Returns the gradients of the inputs. kInputsOnly is the first of two halves (Qi et al.,
  // "Zero Bubble Pipeline Parallelism", 2023), what other stages wait for; the gradients of
  // matrices come later, by BackwardWeights. The hooks are of both.
  StageGradients Backward(StageGradients gradients = {}, const BackwardHooks& hooks = {},
                          Tape::Extent extent = Tape::Extent::kAll);
  void BackwardWeights();

 private:
  using Slots = std::vector<std::shared_ptr<GradientSlot>>;
  // What Recompute begins with.
  struct Again {
    StageVariables inputs;
    Tensor targets;
  };

  static Slots SlotsOf(const Variables& variables);
  static std::vector<Tensor> Take(const Slots& slots);

  Pass Begin(Tape::Recording recording, Pass::Replay replay);
  StageVariables RunRecorded(Pass::Replay replay, StageVariables inputs, const Tensor& targets);

  LocalModel& local_model_;
  const BlockRange blocks_;
  const SkipEnds skips_;
  const int64_t step_, micro_batch_;
  const Activations activations_;
  Tensor documents_;
  std::unique_ptr<Tape> tape_;
  Slots inputs_, skips_in_, outputs_, skips_out_;
  std::optional<LossInRuns> loss_in_runs_;  // of the last block
  CrossEntropy loss_;                       // behind the last block
  std::optional<Again> again_;
};

// Runs a batch of so many samples through a range of blocks in evaluation, without gradients.
// Behind the last block, `sums` becomes what is to be known of the logits, and there are no
// outputs.
StageVariables EvaluateStage(LocalModel& local_model, const BlockRange& blocks, int64_t samples,
                             StageVariables inputs, const Batch& batch, EvaluationSums& sums);

}  // namespace lockstep
