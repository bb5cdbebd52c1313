#pragma once

namespace lockstep {

// Whether the products of a run have the same rows and columns on every mesh that is to have its
// bits. Libraries choose the order of a product's sums by the shape of the call.
enum class ProductShapes {
  // Meshes divide tokens, features or the rows of experts. The sums of products have one order for
  // each inner dimension, whatever rows and columns a call has, and our own kernels sum gradients
  // of
  // biases, in an order that no number of columns changes.
  kDivided,
  // Every product has one shape on all meshes: cut.tokens and cut.features are 1, and the model has
  // no experts. The library may choose any order that it repeats, and sum the gradient of a 16-bit
  // layer's bias beside its weight's.
  kSame,
};

}  // namespace lockstep
