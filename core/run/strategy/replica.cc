#include "core/run/strategy/replica.h"

namespace lockstep {

void Replica::ForwardBackward(int64_t step, int64_t micro_batch, const Batch& batch,
                              const BackwardHooks& hooks) {
  StagePass pass(*this, ranges()[0], step, micro_batch);
  pass.Forward({.line = Enter(batch.inputs)}, batch);
  statistics_.EndForward(ranges()[0], micro_batch);
  pass.Backward({}, hooks);
}

void Replica::EndShard() {
  for (Parameter* use : uses()) LocalModel::EndShard(*use);
}

void Replica::AddTiedGradients() {
  for (Parameter* use : uses()) {
    if (use->tied_to == nullptr) continue;
    const Tensor& sum = use->tied_to->gradient;
    rank().kernels.Add(sum, use->gradient, sum);
  }
}

CostPrediction Replica::Predict() const {
  CostPrediction prediction = LocalModel::Predict();
  statistics_.AddCosts(rank().mesh, prediction);
  return prediction;
}

EvaluationSums Replica::Evaluate(const Batch& batch) {
  EvaluationSums sums;
  EvaluateStage(*this, ranges()[0], SamplesIn(batch.inputs), {.line = Enter(batch.inputs)}, batch,
                sums);
  return sums;
}

}  // namespace lockstep
