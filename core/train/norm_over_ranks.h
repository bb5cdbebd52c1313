#pragma once

#include "core/comm/communicator.h"
#include "core/kernels/kernels.h"
#include "core/optim/gradient_norm.h"

namespace lockstep {

// The norm of gradients of which each of `ranks` holds a part: two all-reduces, "norm", of
// kNormBytes together. Its calls throw StatusException; all ranks make them.
NormReduction NormOver(Communicator& ranks, Kernels& kernels);

// The largest magnitude, and three bins of a sum of squares.
inline constexpr double kNormBytes = sizeof(float) + 3 * sizeof(double);

}  // namespace lockstep
