#include "core/run/replica.h"

namespace lockstep {

void Replica::ForwardBackward(int64_t step, int64_t micro_batch, const Batch& batch,
                              const BackwardHooks& hooks) {
  StagePass pass(*this, ranges()[0], step, micro_batch);
  pass.Forward({.line = Enter(batch.inputs)}, batch.targets);
  pass.Backward({}, hooks);
}

EvaluationSums Replica::Evaluate(const Batch& batch) {
  EvaluationPass pass(*this, ranges()[0], batch.inputs.shape()[0]);
  const StageVariables logits = pass.Forward({.line = Enter(batch.inputs)});
  return pass.Score(logits.line[0], batch.targets);
}

}  // namespace lockstep
