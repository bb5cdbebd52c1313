#pragma once

#include <functional>
#include <vector>

#include "core/kernels/kernels.h"
#include "core/optim/optimizer.h"

namespace lockstep {

// How ranks that hold different parts of the gradients agree on their norm. The defaults are for a
// rank that holds all of them.
struct NormReduction {
  std::function<float(float)> max = [](float local) { return local; };
  std::function<SquareSum(SquareSum)> sum = [](SquareSum local) { return local; };
};

// The 2-norm of all gradients taken together. The same bits however the gradients are cut and
// distributed (SquareSum says how), so that clipping agrees between strategies. Infinite if any
// element is infinite or NaN.
double GradientNorm(Kernels& kernels, const std::vector<TrainedTensor>& trained,
                    const NormReduction& reduction = {});

// What gradients are multiplied by so that their norm is at most `max_norm` (0: no limit), as
// torch.nn.utils.clip_grad_norm_ has it.
float ClipFactor(double norm, double max_norm);

}  // namespace lockstep
