// Layers whose sums over features are trees over leaves (docs/numerics.md, "Feature leaves"),
// computed leaf by leaf from slices: convolutions, and layers that have adapters. What several
// operations add to one leaf is added before the tree: so ranks that hold leaves sum once.
//
//   Variables readers = FanOut(tape, x, leaves);             // a layer split by output features
//   Variable y = SlicedOutputs(tape, product, readers, w, bias, outputs);
//
//   LeafSum sum = SlicedInputs(tape, product, x, w, inputs);  // one split by input features
//   Variable y = AddUp(tape, std::move(sum));

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/autograd/leaf.h"
#include "core/autograd/tape.h"
#include "core/autograd/variable.h"
#include "core/kernels/kernels.h"

namespace lockstep {

// What a weight does to features: a product w [out, in], that product of gelu(x), or a convolution
// w [out, kernel, kernel, in] through a window.
struct WeightProduct {
  enum class Kind { kLinear, kGeluLinear, kConvolution };
  Kind kind = Kind::kLinear;
  Window window = {};

  static WeightProduct Of(const std::optional<Window>& window) {
    return window ? WeightProduct{Kind::kConvolution, *window} : WeightProduct{};
  }
};

// x for the readers of each leaf: variables of one value, whose gradients are added along the tree
// over leaves to x's. All of them get one, or none.
Variables FanOut(Tape& tape, const Variable& x, int64_t leaves);

// product(x, w) + bias with slices of the weight's outputs: leaf i reads x[i] and makes the outputs
// outputs[i], side by side in the result.
Variable SlicedOutputs(Tape& tape, const WeightProduct& product, const Variables& x, Leaf& w,
                       Leaf* bias, const FeatureLeaves& outputs);

// A sum over leaves before it is added up: a value of each leaf, whose gradients are the sum's.
struct LeafSum {
  std::vector<Tensor> values;
  std::shared_ptr<GradientSlot> gradient;  // null: none is wanted
};
// product(x, w), of which leaf i is made from the features inputs[i] of x and of the weight.
LeafSum SlicedInputs(Tape& tape, const WeightProduct& product, const Variable& x, Leaf& w,
                     const FeatureLeaves& inputs);
// The sum, along the tree over leaves. Uses its values up.
Variable AddUp(Tape& tape, LeafSum sum);

// --- low-rank adapters --------------------------------------------------------------------------

// Dropout and scale for the readers of each leaf, and the scale of a sum's leaves. `first_element`:
// where x begins in the unsharded tensor.
Variables ApplyDropout(Tape& tape, const Dropout& dropout, const Variables& x,
                       int64_t first_element = 0);
Variables Scale(Tape& tape, const Variables& x, float factor);
LeafSum Scale(Tape& tape, LeafSum x, float factor);

// product(x, w) for the readers of each leaf: one value, and in w an accumulator for each leaf.
Variables Product(Tape& tape, const WeightProduct& product, const Variables& x, Leaf& w);

// As AddProduct of operations.h, for a layer split by outputs: outputs[i] are the leaf's among y's.
Variable AddProduct(Tape& tape, Variable y, const Variables& x, Leaf& w, int64_t first,
                    const FeatureLeaves& outputs);
// The same for each leaf of a sum, with an accumulator for each leaf in w.
LeafSum AddProduct(Tape& tape, LeafSum y, const LeafSum& x, Leaf& w, int64_t first);

}  // namespace lockstep
