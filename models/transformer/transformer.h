#pragma once

#include <cstdint>

#include "core/nn/model.h"

namespace lockstep {

// A GPT-2-style decoder (Radford et al., 2019): pre-norm blocks, learned positions, tanh GELU, an
// output head tied to the token embedding.
struct TransformerOptions {
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t width = 128;
  int64_t context = 64;  // longest sequence
  int64_t vocabulary = 65;
  float dropout = 0;  // of embeddings, attention probabilities and both residual branches
};

// Input ids i32 [batch, time], logits [batch, time, vocabulary]. Blocks: embedding, one for each
// layer ("blocks.0", ...), head. GPT-2 124M (12 layers, 12 heads, width 768, context 1024,
// vocabulary 50257) has 124,439,808 parameters. Matrices start normal with standard deviation 0.02,
// those that end a residual branch with 0.02 / sqrt(2 layers).
//
// Requires width to be a multiple of heads.
Model MakeTransformer(const TransformerOptions& options);

}  // namespace lockstep
