#pragma once

#include <cstdint>
#include <optional>

#include "core/nn/experts.h"
#include "core/nn/model.h"
#include "core/nn/positions.h"

namespace lockstep {

// A decoder of the Llama family (Touvron et al., 2023; Grattafiori et al., "The Llama 3 Herd of
// Models", 2024): pre-norm blocks with RMS normalisation, rotary positions, grouped-query
// attention, an MLP with SwiGLU or a mixture of such, and no biases.
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
  // In place of each layer's MLP, a mixture of experts, each an MLP of experts->hidden features
  // (Jiang et al., "Mixtral of Experts", 2024).
  std::optional<ExpertsOptions> experts = std::nullopt;
  // Hidden features of an MLP beside the experts that sees all tokens, as DeepSeek-V3 has it: the
  // widths of its shared experts together. 0: none.
  int64_t shared_width = 0;
};

// Input ids i32 [batch, time], logits [batch, time, vocabulary]. Blocks: embedding, one for each
// layer ("blocks.0", ...), head. Llama 3 8B (32 layers, 32 heads, 8 key heads, width 4096, MLP
// width 14336, vocabulary 128256, a head of its own) has 8,030,261,248 parameters. Matrices start
// as decoder.h says, scales at 1. Mixtral 8x7B (as Llama 3 8B, but a vocabulary of 32000 and 8
// experts of which a token has 2) has 46,702,792,704 parameters, a token 12,879,925,248.
//
// Requires width to be an even multiple of heads, and heads a multiple of key_heads.
Model MakeLlama(const LlamaOptions& options);

}  // namespace lockstep
