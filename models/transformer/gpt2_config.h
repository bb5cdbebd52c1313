// The config.json of Hugging Face's transformers, for GPT-2.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "models/transformer/transformer.h"

namespace lockstep {

// The text of such a file.
std::string Gpt2Config(const TransformerOptions& options);

// Whether such a file has the number of heads of `options`, which the tensors do not show.
// FailedPrecondition if it has another.
absl::Status CheckGpt2Config(const std::string& text, const TransformerOptions& options);

}  // namespace lockstep
