#pragma once

#include <cstdint>
#include <vector>

#include "core/comm/mesh.h"
#include "core/config/cut_settings.h"
#include "core/config/settings.h"
#include "core/run/strategy/local_model.h"

namespace lockstep {

// The batch statistics of every micro-batch of a step, for the layers whose estimates move once for
// each of them ([train] deferred_batch_norm = false). All ranks gather those of all micro-batches
// and move their estimates in the global order of micro-batches, so that the estimates do not
// depend on the mesh. As with torchgpipe's deferred_batch_norm=False, a micro-batch counts alike
// whatever its size.
class MicroBatchStatistics {
 public:
  // The model and the settings outlive it.
  MicroBatchStatistics(LocalModel& local_model, const Settings& settings,
                       ShardAssignment assignment);

  // After the forward of a micro-batch, by its number in the step, through a range of blocks: keeps
  // what their layers have gathered.
  void Keep(const BlockRange& blocks, int64_t micro_batch);
  // Once a step, after all forwards: gathers the statistics of all data-parallel ranks. Throws
  // StatusException.
  void Gather(const Mesh& mesh);
  // After Gather: moves the estimates once for each micro-batch of the step.
  void Update();

  // Adds the bytes that are kept, and what this rank sends in a step. Nothing without layers.
  void AddCosts(const Mesh& mesh, CostPrediction& prediction) const;

 private:
  struct Layer {
    RunningStatistics* statistics;
    int64_t first_block;  // of its range
    int64_t offset;       // in a row of `rows_`
    int64_t rows_per_sample = 0;
  };

  // A layer's [2, held channels] of one micro-batch.
  Tensor StatisticsOf(const Layer& layer, int64_t micro_batch) const;

  LocalModel& local_model_;
  const Settings& settings_;
  std::vector<Layer> layers_;
  // The row of each micro-batch of the step: those of a data-parallel rank lie behind each other.
  std::vector<int64_t> row_of_;
  Tensor rows_;  // f32 [micro-batches of the step, elements of all layers]; undefined without any
};

}  // namespace lockstep
