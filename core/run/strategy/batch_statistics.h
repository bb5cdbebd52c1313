#pragma once

#include <cstdint>

#include "core/comm/mesh.h"
#include "core/config/cut_settings.h"
#include "core/config/settings.h"
#include "core/run/strategy/local_model.h"
#include "core/run/strategy/micro_batch_statistics.h"
#include "core/run/strategy/statistics_sums.h"

namespace lockstep {

// What layers gather of the micro-batches of a step, and the running estimates that follow from it.
// Estimates move once a step, by sums over its micro-batches; those of batch normalisations move
// once for each micro-batch where [train] deferred_batch_norm is false.
//
//   for (each micro-batch) {
//     // forward through each range of blocks
//     statistics.EndForward(blocks, micro_batch);
//   }
//   statistics.Share(mesh);
//   if (!skipped) statistics.Update();
class BatchStatistics {
 public:
  // The model outlives it.
  BatchStatistics(LocalModel& local_model, const Settings& settings, ShardAssignment assignment)
      : local_model_(local_model),
        of_shard_(settings.cut.micro_batches),
        sums_(local_model, settings, assignment),
        micro_batches_(local_model, settings, assignment) {}

  // After the forward of a micro-batch, by its number in the step, through a range of blocks.
  void EndForward(const BlockRange& blocks, int64_t micro_batch);
  // Once a step, after all forwards: combines what ranks have gathered. Throws StatusException.
  void Share(const Mesh& mesh);
  // After Share, unless the step is skipped: moves the running estimates.
  void Update();

  // Adds the bytes that are kept, and what this rank sends in a step. Nothing without statistics.
  void AddCosts(const Mesh& mesh, CostPrediction& prediction) const;

 private:
  LocalModel& local_model_;
  const int64_t of_shard_;  // micro-batches
  StatisticsSums sums_;
  MicroBatchStatistics micro_batches_;
};

}  // namespace lockstep
