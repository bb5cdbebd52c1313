#pragma once

#include <cstdint>

#include "core/nn/published.h"

namespace lockstep {

// The names of GPT-2's tensors in Hugging Face's transformers (GPT2Model, whose linear layers are a
// Conv1D with weights [in, out]), for a transformer of so many layers. A model with a shorter
// context takes the first positions.
PublishedNames Gpt2Names(int64_t layers);

}  // namespace lockstep
