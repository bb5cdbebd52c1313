#include "core/train/replica.h"

namespace lockstep {

void Replica::ForwardBackward(int64_t step, int64_t micro_batch, const Batch& batch,
                              const BackwardHooks& hooks) {
  StagePass pass(*this, step, micro_batch);
  pass.Forward(Enter(batch.inputs), batch.targets);
  pass.Backward({}, hooks);
}

EvaluationSums Replica::Evaluate(const Batch& batch) {
  EvaluationPass pass(*this, batch.inputs.shape()[0]);
  const Variables logits = pass.Forward(Enter(batch.inputs));
  return pass.Score(logits[0], batch.targets);
}

}  // namespace lockstep
