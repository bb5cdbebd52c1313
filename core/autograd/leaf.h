#pragma once

#include <cstdint>
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

  // Gives each of so many leaves of the gradient's tree an accumulator of its own, like `gradient`,
  // in memory of `kernels`: where leaves are complete only when the shard ends (docs/numerics.md,
  // "Trees nest"). The first leaf's accumulator is `gradient` itself. Requires `value`.
  void MakeAccumulators(Kernels& kernels, int64_t leaves);
  int64_t accumulators() const { return 1 + static_cast<int64_t>(further_.size()); }
  bool has_accumulators() const { return !further_.empty(); }
  // Bytes of all accumulators but the first.
  int64_t accumulator_bytes() const;
  // As NextContribution, to the accumulator of one leaf.
  Destination NextContributionOf(int64_t leaf, Kernels& kernels);
  // The accumulator of one leaf; of the first one, the gradient.
  const Tensor& AccumulatorOf(int64_t leaf) const {
    return leaf == 0 ? gradient : further_.at(static_cast<size_t>(leaf - 1)).gradient;
  }
  // Adds the `count` accumulators first, first + stride, ... along their tree into the first of
  // them, each node rounded to the gradient's dtype, and returns it. Each must have a contribution.
  Tensor SumAccumulators(Kernels& kernels, int64_t first, int64_t count, int64_t stride);

  // Starts the next step: the first contribution replaces what the buffer holds.
  void ClearGradient() {
    has_gradient_ = false;
    for (Leaf& accumulator : further_) accumulator.ClearGradient();
  }

  // For who fills the buffer by other means (a reduction, a fold of tied weights).
  void MarkGradient() { has_gradient_ = true; }

 private:
  bool has_gradient_ = false;
  std::vector<Leaf> further_;  // accumulators, behind that of the first leaf
};

}  // namespace lockstep
