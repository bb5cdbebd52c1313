#pragma once

#include <cstdint>

#include "core/nn/model.h"
#include "core/nn/positions.h"

namespace lockstep {

// A decoder of the Llama family (Touvron et al., 2023; Grattafiori et al., "The Llama 3 Herd of
// Models", 2024): pre-norm blocks with RMS normalisation, rotary positions, grouped-query
// attention, an MLP with SwiGLU, and no biases.
struct LlamaOptions {
  // Whose weights the logits are made with.
  enum class Head { kOwn, kTied };

  int64_t layers = 4;
  int64_t heads = 4;      // of queries
  int64_t key_heads = 4;  // of keys and of values
  int64_t width = 128;
  int64_t mlp_width = 384;
  int64_t context = 64;  // longest sequence
  int64_t vocabulary = 65;
  double norm_epsilon = 1e-5;
  RotaryOptions rotary = {};
  Head head = Head::kOwn;
};

// Input ids i32 [batch, time], logits [batch, time, vocabulary]. Blocks: embedding, one for each
// layer ("blocks.0", ...), head. Llama 3 8B (32 layers, 32 heads, 8 key heads, width 4096, MLP
// width 14336, vocabulary 128256, a head of its own) has 8,030,261,248 parameters. Matrices start
// as decoder.h says, scales at 1.
//
// Requires width to be an even multiple of heads, and heads a multiple of key_heads.
Model MakeLlama(const LlamaOptions& options);

}  // namespace lockstep
