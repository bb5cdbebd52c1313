#pragma once

#include "core/nn/published.h"
#include "models/transformer/llama.h"

namespace lockstep {

// Whether transformers' Llama or Mixtral computes what `options` say: names and a config.json of
// them exist for such models alone.
bool HasPublishedKind(const LlamaOptions& options);

// The names of Llama's tensors in Hugging Face's transformers (LlamaForCausalLM), whose projections
// are tensors of their own.
PublishedNames LlamaNames(const LlamaOptions& options);

}  // namespace lockstep
