#pragma once

#include "core/nn/published.h"
#include "models/transformer/llama.h"

namespace lockstep {

// The names of Llama's tensors in Hugging Face's transformers (LlamaForCausalLM), whose projections
// are tensors of their own.
PublishedNames LlamaNames(const LlamaOptions& options);

}  // namespace lockstep
