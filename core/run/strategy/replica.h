#pragma once

#include <cstdint>
#include <utility>

#include "core/data/dataset.h"
#include "core/run/strategy/batch_statistics.h"
#include "core/run/strategy/local_model.h"
#include "core/run/strategy/stage_pass.h"
#include "core/run/strategy/strategy.h"

namespace lockstep {

// A whole model on one rank: all blocks are one range, through which a batch passes in one go. For
// strategies whose ranks each run the whole model.
class Replica : public LocalModel {
 public:
  Replica(Rank& rank, Model model, const Settings& settings, int64_t targets_per_sample)
      : LocalModel(rank, std::move(model), {BlockRange()}, settings, targets_per_sample),
        statistics_(*this, settings, ShardAssignment::kConsecutive) {}

  // Runs one micro-batch forward and backward. Gradients and batch statistics add up until the next
  // Clear; the sum of its losses, divided by the global count of targets, is added to loss().
  void ForwardBackward(int64_t step, int64_t micro_batch, const Batch& batch,
                       const BackwardHooks& hooks = {});

  // Ends a shard of the batch: EndShard of all uses.
  void EndShard();
  // After all shards: combines the batch statistics of data-parallel ranks. Throws StatusException.
  void ShareStatistics() { statistics_.Share(rank().mesh); }
  // Moves all running estimates. Not called where the step is skipped.
  void UpdateStatistics() { statistics_.Update(); }
  // After all shards and ranks: adds the gradients of tied parameters to their owners'.
  void AddTiedGradients();

  EvaluationSums Evaluate(const Batch& batch);

  // With what batch statistics cost.
  CostPrediction Predict() const;

 private:
  BatchStatistics statistics_;
};

}  // namespace lockstep
