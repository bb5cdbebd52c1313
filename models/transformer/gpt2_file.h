#pragma once

#include <cstdint>
#include <string>

#include "core/checkpoint/testing/safetensors_by_hand.h"
#include "models/transformer/transformer.h"

namespace lockstep {

// What a test says an element of a GPT-2 is, by our name of the parameter and its place in our
// layout: row and column of a matrix, element of a vector (row 0). About as large as weights are,
// and no two alike.
float Gpt2Value(const std::string& parameter, int64_t row, int64_t column);

// A file of such a model as Hugging Face's transformers write it, `prefix` before each name, with
// `spare_positions` more of them than the context.
SafetensorsByHand Gpt2File(const TransformerOptions& options, const std::string& prefix = "",
                           int64_t spare_positions = 0);

}  // namespace lockstep
