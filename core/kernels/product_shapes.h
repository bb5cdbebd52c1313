#pragma once

namespace lockstep {

// Whether the products of a run have the same rows and columns on every mesh that is to have its
// bits. Libraries choose the order of a product's sums by the shape of the call.
enum class ProductShapes {
  // Meshes divide tokens, features or the rows of experts. A product's sums have one order for each
  // inner dimension, whatever rows and columns are there, and our own kernels sum bias gradients,
  // in
  // an order that no number of columns changes.
  kDivided,
  // They have: cut.tokens and cut.features are 1, and there are no experts. The library may choose
  // any order that it repeats, and sum a bias's gradient of 16 bits beside the weight's.
  kSame,
};

}  // namespace lockstep
