#pragma once

#include "core/comm/communicator.h"
#include "core/kernels/kernels.h"
#include "core/optim/gradient_norm.h"

namespace lockstep {

// The norm of gradients that lie on all members of `ranks`, each element on one of them. Both
// outlive it. Throws StatusException.
NormReduction NormOverRanks(Communicator& ranks, Kernels& kernels);

// Payload of its all-reduces, label "norm": the largest magnitude, and three bins of a sum of
// squares.
inline constexpr double kNormBytes = sizeof(float) + 3 * sizeof(double);

}  // namespace lockstep
