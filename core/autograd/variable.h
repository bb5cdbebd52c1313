#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/kernels/kernels.h"
#include "core/tensor/tensor.h"

namespace lockstep {

// Where the gradient of one intermediate result gathers during backward. Contributions add up in
// the order in which backward reaches them, which is the reverse of the order of use.
class GradientSlot {
 public:
  bool empty() const { return !value_.defined(); }

  // Adds `gradient`; the first one is kept as it is, without a copy. A tensor that nobody else
  // holds is added to in place.
  void Add(Kernels& kernels, Tensor gradient);

  // Moves the gradient out, leaving the slot empty; undefined if there was none.
  Tensor Take() { return std::exchange(value_, Tensor()); }

 private:
  Tensor value_;
};

// An intermediate result of a forward pass: a value, and a slot for its gradient if one is wanted.
// A cheap handle. Backward functions keep the slot and only those values that they read again, so
// that all other memory is given back while forward goes on.
struct Variable {
  Tensor value;
  std::shared_ptr<GradientSlot> gradient;  // null: constant (inputs, targets, evaluation)

  Variable() = default;
  explicit Variable(Tensor constant) : value(std::move(constant)) {}
  Variable(Tensor result, std::shared_ptr<GradientSlot> slot)
      : value(std::move(result)), gradient(std::move(slot)) {}

  const Shape& shape() const { return value.shape(); }
  bool needs_gradient() const { return gradient != nullptr; }
};

// What passes between the blocks of a model: one tensor or several, not all of them floating.
using Variables = std::vector<Variable>;

}  // namespace lockstep
