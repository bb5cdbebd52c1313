#pragma once

#include <vector>

#include "core/nn/model.h"

namespace lockstep {

// What a step computes in a block, in multiply-adds of a sample.
struct BlockWork {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;

  double total() const { return forward + input_gradient + weight_gradient; }
};

// The work of each block, from what the model states (BlockCost); a model that states nothing has
// equal blocks.
//
// Where all of it is trained, backward has two products for each of forward. A frozen weight has
// none for its own gradient, and the one for its input's only where something is trained before it:
// in an earlier block, or in a layer that comes before in this one. Adapters have all three, but
// the first of them, whose input needs no gradient. Weights of a block are taken to be used equally
// often, as in transformers and in the basic blocks of ResNets they are; and its layers to run in
// the order of its parameters, with products of activations behind the first, as attention is.
//
// What backward recomputes of a block (Block::recomputed) counts as work for its input's gradient.
std::vector<BlockWork> WorkOfBlocks(const Model& model);

}  // namespace lockstep
