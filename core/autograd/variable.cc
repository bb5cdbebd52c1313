#include "core/autograd/variable.h"

namespace lockstep {

void GradientSlot::Add(Kernels& kernels, Tensor gradient) {
  if (!value_.defined()) {
    value_ = std::move(gradient);
    return;
  }
  if (!value_.shared()) {
    kernels.Add(value_, gradient, value_);
  } else if (!gradient.shared()) {
    kernels.Add(value_, gradient, gradient);
    value_ = std::move(gradient);
  } else {
    Tensor sum = kernels.EmptyLike(value_);
    kernels.Add(value_, gradient, sum);
    value_ = std::move(sum);
  }
}

}  // namespace lockstep
