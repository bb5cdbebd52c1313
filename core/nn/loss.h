#pragma once

#include <cstdint>

#include "core/autograd/operations.h"
#include "core/nn/pass.h"

namespace lockstep {

// What the members of a group that splits classes, or the leaves of a sum over classes, tell each
// other of each row of logits: f32 [rows]. Undefined where the logits are whole.
struct RowStatistics {
  Tensor largest;  // logit
  Tensor sums;     // of exponentials, a tree over feature leaves
  Tensor gaps;     // what the target's logit lacks to the largest
};
// Reduces them over the group, if any. Throws StatusException when a peer fails.
RowStatistics StatisticsOf(Kernels& kernels, const SplitLogits& split, const Tensor& logits,
                           const Tensor& targets);
// From these, as Kernels::SoftmaxCrossEntropy, without the group.
void LossOfRows(Kernels& kernels, const SplitLogits& split, const RowStatistics& statistics,
                const Tensor& logits, const Tensor& targets, float factor, const Tensor& losses,
                const Tensor& dlogits);

// As SoftmaxCrossEntropy of operations.h, also of logits whose classes a group has split: these are
// never gathered, but reduced to three numbers a row, in fp32: the largest logit, the sum of
// exponentials (a tree over feature leaves), and what the target's logit lacks to the largest.
CrossEntropy SoftmaxCrossEntropy(Pass& pass, Variable logits, const Tensor& targets, float factor);

// As Kernels::CountCorrect, also of split logits.
int64_t CountCorrect(Pass& pass, const Tensor& logits, const Tensor& targets);

}  // namespace lockstep
