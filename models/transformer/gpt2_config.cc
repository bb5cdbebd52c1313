#include "models/transformer/gpt2_config.h"

#include "absl/strings/str_cat.h"
#include "core/base/json.h"
#include "nlohmann/json.hpp"

namespace lockstep {

using Json = nlohmann::ordered_json;

std::string Gpt2Config(const TransformerOptions& options) {
  const Json config = {{"architectures", {"GPT2LMHeadModel"}},
                       {"model_type", "gpt2"},
                       {"vocab_size", options.vocabulary},
                       {"n_positions", options.context},
                       {"n_ctx", options.context},
                       {"n_embd", options.width},
                       {"n_layer", options.layers},
                       {"n_head", options.heads},
                       {"activation_function", "gelu_new"},
                       {"layer_norm_epsilon", 1e-5},
                       {"tie_word_embeddings", true},
                       {"bos_token_id", nullptr},
                       {"eos_token_id", nullptr}};
  return config.dump(2) + "\n";
}

absl::Status CheckGpt2Config(const std::string& text, const TransformerOptions& options) {
  const Json file = ParseJson<Json>(text);
  if (!file.is_object() || !file.contains("n_head")) {
    return absl::FailedPreconditionError("is no JSON object with a number of heads, \"n_head\"");
  }
  if (file["n_head"] == options.heads) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("does not fit this model: \"n_head\" is ",
                                                    file["n_head"].dump(), ", but this model's is ",
                                                    options.heads));
}

}  // namespace lockstep
