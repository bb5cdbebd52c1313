#pragma once

#include <cstdint>

#include "core/autograd/operations.h"
#include "core/nn/pass.h"

namespace lockstep {

// As SoftmaxCrossEntropy of operations.h, also of logits whose classes a group has split: these are
// never gathered, but reduced to three numbers a row, in fp32: the largest logit, the sum of
// exponentials (a tree over feature leaves), and what the target's logit lacks to the largest.
CrossEntropy SoftmaxCrossEntropy(Pass& pass, Variable logits, const Tensor& targets, float factor);

// As Kernels::CountCorrect, also of split logits.
int64_t CountCorrect(Pass& pass, const Tensor& logits, const Tensor& targets);

}  // namespace lockstep
