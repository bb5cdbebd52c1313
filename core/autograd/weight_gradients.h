// For operations with leaves: where the gradients of these go.

#pragma once

#include <initializer_list>
#include <vector>

#include "core/autograd/leaf.h"
#include "core/autograd/tape.h"

namespace lockstep {

inline bool Trains(const Leaf* leaf) { return leaf != nullptr && leaf->trainable; }

// Where the gradients of an operation's leaves go: undefined for leaves that are not trained, or
// when this half does not compute weights. Kernels write all of them in one mode.
struct Destinations {
  std::vector<Tensor> tensors;
  Write write = Write::kOverwrite;

  const Tensor& operator[](int i) const { return tensors[i]; }
};
Destinations NextContributions(Kernels& kernels, Tape::Half half,
                               std::initializer_list<Leaf*> leaves);

}  // namespace lockstep
