#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "core/kernels/kernels.h"
#include "core/tensor/tensor.h"

namespace lockstep {

// A tensor that is trained: what the tape's gradients end in. Kernels write weight gradients
// straight into its buffer, replacing what is there the first time in a step and adding after that,
// so that micro-batches accumulate without a pass of their own.
//
// Strategies decide where the memory lies: `value` and `gradient` may be views into flat buffers,
// and their storage may be released while it is not needed.
class Leaf {
 public:
  Tensor value;
  Tensor gradient;                     // may be undefined until it is first written
  DType gradient_dtype = DType::kF32;  // of a gradient that is made here

  // False: frozen. No gradient is computed, and nothing that only its gradient would need.
  bool trainable = true;

  // Whether the gradient holds anything in this step.
  bool has_gradient() const { return has_gradient_; }

  // The buffer to write the next contribution to, made from `kernels` if there is none yet, and
  // whether that contribution replaces or adds.
  struct Destination {
    Tensor tensor;
    Write write;
  };
  Destination NextContribution(Kernels& kernels) {
    if (!gradient.defined()) {
      gradient = kernels.Empty(value.shape(), gradient_dtype, MemoryClass::kGradients);
    }
    return {gradient, std::exchange(has_gradient_, true) ? Write::kAccumulate : Write::kOverwrite};
  }

  // The same for the accumulator of one of `leaves` feature leaves: where ranks that split a layer
  // would each have a gradient of this whole tensor, from their features (docs/numerics.md).
  Destination NextContribution(Kernels& kernels, size_t feature_leaf, size_t leaves);
  // After the last contribution: adds the accumulators along their tree into the gradient, each
  // node rounded to its dtype, and gives their memory back. Does nothing if nothing was
  // contributed.
  void SumFeatureLeaves(Kernels& kernels);

  // Starts the next step: the first contribution replaces what the buffer holds.
  void ClearGradient() { has_gradient_ = false; }

  // For who fills the buffer by other means (a reduction, a fold of tied weights).
  void MarkGradient() { has_gradient_ = true; }

 private:
  bool has_gradient_ = false;
  std::vector<Leaf> feature_leaves_;  // accumulators, from the first contribution to their sum
};

}  // namespace lockstep
