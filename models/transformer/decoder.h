// What the decoders of this folder have in common: a token embedding, layers of an attention branch
// and an MLP branch, and a head. Their modules are named alike: "embedding.token",
// "blocks.<i>.attention.qkv" and ".projection", "blocks.<i>.network.<first of the MLP>" and
// ".down", "head.logits". A mixture of experts has "blocks.<i>.network.experts", and beside them
// perhaps an MLP whose layers are named as above.

#pragma once

#include <cstdint>
#include <string>

#include "core/nn/layers.h"
#include "core/nn/model.h"

namespace lockstep {

// Sizes that a decoder's costs follow from.
struct DecoderSizes {
  int64_t layers = 0;
  int64_t width = 0;
  int64_t context = 0;  // tokens of a sample
  int64_t vocabulary = 0;
  int64_t attention_weights = 0;  // elements of the projections of one layer's attention
  int64_t mlp_weights = 0;        // elements of one layer's MLP that a token is multiplied by
  // The layer that the MLP begins with: "up"; empty: there are experts alone.
  std::string first_of_mlp = {};
  int64_t chosen_experts = 0;  // of a token
};

// Tells `model`, which has all its blocks, how tensor parallelism splits it and what that sends,
// and what each of its blocks costs.
void StatePlanAndCosts(const DecoderSizes& sizes, Model& model);

// Matrices start normal with standard deviation 0.02; those that end a residual branch with 0.02 /
// sqrt(2 layers), so that the sum over the branches keeps its variance (Radford et al., 2019).
Init InitOfMatrices();
Init InitOfBranchEnds(int64_t layers);

}  // namespace lockstep
