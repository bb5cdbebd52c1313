#pragma once

#include <cstdint>
#include <utility>

#include "core/data/dataset.h"
#include "core/run/local_model.h"
#include "core/run/stage_pass.h"
#include "core/run/strategy.h"

namespace lockstep {

// A whole model on one rank: all blocks are one range, through which a batch passes in one go. For
// strategies whose ranks each run the whole model.
class Replica : public LocalModel {
 public:
  Replica(Rank& rank, Model model, const Settings& settings, int64_t targets_per_sample)
      : LocalModel(rank, std::move(model), {BlockRange()}, settings, targets_per_sample) {}

  // Runs one micro-batch forward and backward. Gradients and batch statistics add up until the next
  // Clear; the sum of its losses, divided by the global count of targets, is added to loss().
  void ForwardBackward(int64_t step, int64_t micro_batch, const Batch& batch,
                       const BackwardHooks& hooks = {});

  EvaluationSums Evaluate(const Batch& batch);
};

}  // namespace lockstep
