// The config.json of Hugging Face's transformers, for models of the Llama family.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/transformer/llama.h"

namespace lockstep {

// The text of such a file.
std::string LlamaConfig(const LlamaOptions& options);

// The model that such a file describes, its context being `max_position_embeddings`. Keys that are
// not there have transformers' defaults. InvalidArgument, with a line for each fault, for what is
// no Llama, for keys that are missing or wrong, and for what this code does not compute: biases,
// other activations, heads whose width is not width / heads, other types of rotary positions than
// "default" and "llama3".
absl::StatusOr<LlamaOptions> ReadLlamaConfig(const std::string& text);

// Whether such a file describes `options`, whose context may be shorter. FailedPrecondition with a
// line for each key that disagrees, or the error of ReadLlamaConfig.
absl::Status CheckLlamaConfig(const std::string& text, const LlamaOptions& options);

}  // namespace lockstep
