#include "core/run/strategy/batch_statistics.h"

namespace lockstep {

void BatchStatistics::EndForward(const BlockRange& blocks, int64_t micro_batch) {
  micro_batches_.Keep(blocks, micro_batch);
  if ((micro_batch + 1) % of_shard_ == 0) sums_.EndShard(blocks);
}

void BatchStatistics::Share(const Mesh& mesh) {
  sums_.Sum(mesh);
  micro_batches_.Gather(mesh);
}

void BatchStatistics::Update() {
  local_model_.UpdateStatistics();
  micro_batches_.Update();
}

void BatchStatistics::AddCosts(const Mesh& mesh, CostPrediction& prediction) const {
  sums_.AddCosts(mesh, prediction);
  micro_batches_.AddCosts(mesh, prediction);
}

}  // namespace lockstep
