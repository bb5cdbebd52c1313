#pragma once

#include <string>

#include "core/kernels/kernels.h"
#include "core/nn/pass.h"

namespace lockstep {

// The dropout of one place in a model: which elements fall out depends on (seed, place, step,
// micro-batch, element), so that a recompute repeats it. Probability 0 in evaluation.
Dropout DropoutAt(const Pass& pass, const std::string& place, float probability);

}  // namespace lockstep
