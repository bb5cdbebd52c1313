// Cross entropy without whole logits in memory: the head's product and the loss go over runs of
// rows, one after the other. Backward makes the logits of each run again, which costs one more
// product of the head, and keeps nothing but its input. All bits are those of the whole loss: rows
// do not depend on each other, and a run is a node of the tree over row leaves of the weight's
// gradient (docs/numerics.md, "Loss in runs").

#pragma once

#include <cstdint>

#include "core/autograd/leaf.h"
#include "core/autograd/operations.h"
#include "core/autograd/variable.h"
#include "core/kernels/kernels.h"
#include "core/nn/pass.h"

namespace lockstep {

// What a pass has its logits layer do in place of logits.
struct LossInRuns {
  int64_t rows = kRowLeaf;  // of a run: kRowLeaf times a power of two
  Tensor targets;    // i32, an element for each row of the pass; undefined: no loss is wanted
  float factor = 1;  // see SoftmaxCrossEntropy
  int64_t* correct = nullptr;  // CountCorrect of all rows is added to it; null: not counted
};

// The losses f32 [rows], 0 where the target is ignored, of the logits x weight^T, as the pass says:
// pass.loss_in_runs, and pass.split_logits for classes that a group has split. `outputs`: the
// leaves of the sum over classes, as in SummedLeaves. The losses' gradient is pass.loss_in_runs'
// factor for each row, whatever arrives.
Variable CrossEntropyInRuns(Pass& pass, const Variable& x, Leaf& weight,
                            const FeatureLeaves& outputs);

// Records the start of backward from these losses, as SoftmaxCrossEntropy does.
CrossEntropy StartFromLosses(Pass& pass, const Variable& losses);

}  // namespace lockstep
