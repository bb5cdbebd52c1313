#include "models/transformer/llama_config.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/json.h"
#include "core/base/status.h"
#include "core/config/key_ranges.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kLlama3[] = "llama3";
// Types of models.
constexpr char kLlama[] = "llama", kMixtral[] = "mixtral";

// What a file says of a model's sizes and functions, under transformers' keys.
Json SettingsOf(const LlamaOptions& options) {
  Json rope_scaling = nullptr;
  if (const auto& scaling = options.rotary.scaling) {
    rope_scaling = {{"rope_type", kLlama3},
                    {"factor", scaling->factor},
                    {"low_freq_factor", scaling->low_frequency_turns},
                    {"high_freq_factor", scaling->high_frequency_turns},
                    {"original_max_position_embeddings", scaling->original_context}};
  }
  Json settings = {
      {"vocab_size", options.vocabulary},
      {"hidden_size", options.width},
      {"intermediate_size", options.experts ? options.experts->hidden : options.mlp_width},
      {"num_hidden_layers", options.layers},
      {"num_attention_heads", options.heads},
      {"num_key_value_heads", options.key_heads},
      {"rms_norm_eps", options.norm_epsilon},
      {"rope_theta", options.rotary.theta},
      {"rope_scaling", std::move(rope_scaling)},
      {"tie_word_embeddings", options.head == LlamaOptions::Head::kTied}};
  if (options.experts) {
    settings["num_local_experts"] = options.experts->routing.experts;
    settings["num_experts_per_tok"] = options.experts->routing.chosen;
  }
  return settings;
}

// Reads keys of one object, and gathers what is wrong with them.
class Reader {
 public:
  Reader(const Json& object, std::string prefix, std::vector<std::string>& problems)
      : object_(object), prefix_(std::move(prefix)), problems_(problems) {}

  bool Has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }

  void Read(const char* key, int64_t* value, double at_most) const {
    if (!Has(key)) return;
    const Json& found = object_[key];
    if (!found.is_number_integer() || found.get<double>() < 1) {
      AddProblem(key, "is no positive whole number");
    } else if (found.get<double>() > at_most) {
      AddProblem(key, absl::StrCat("is ", found.dump(), ", but can be at most ",
                                   static_cast<int64_t>(at_most)));
    } else {
      *value = found.get<int64_t>();
    }
  }
  void Read(const char* key, double* value) const {
    if (!Has(key)) return;
    if (object_[key].is_number() && object_[key].get<double>() > 0) {
      *value = object_[key].get<double>();
    } else {
      AddProblem(key, "is no positive number");
    }
  }
  template <typename T, typename... Bound>
  void Require(const char* key, T* value, Bound... at_most) const {
    if (!Has(key)) AddProblem(key, "is missing");
    Read(key, value, at_most...);
  }
  // `fallback`: what a file without the key means.
  void Expect(const char* key, const Json& wanted, const Json& fallback, const char* why) const {
    const Json& found = Has(key) ? object_[key] : fallback;
    if (found != wanted) AddProblem(key, absl::StrCat("is ", found.dump(), ", but ", why));
  }
  void AddProblem(const char* key, const std::string& problem) const {
    problems_.push_back(absl::StrCat("\"", prefix_, key, "\" ", problem));
  }

 private:
  const Json& object_;
  std::string prefix_;
  std::vector<std::string>& problems_;
};

// The type and the numbers of `object`, which stands at `name`.
void ReadScaling(const Json& object, const std::string& name, RotaryOptions& rotary,
                 std::vector<std::string>& problems) {
  const Reader reader(object, name + ".", problems);
  const char* key = reader.Has("rope_type") || !reader.Has("type") ? "rope_type" : "type";
  const Json type = reader.Has(key) ? object[key] : Json("default");
  if (type == "default") return;
  if (type != kLlama3) {
    return reader.AddProblem(
        key, absl::StrCat("is ", type.dump(),
                          ", but the types of rotary positions here are \"default\" and \"",
                          kLlama3, "\""));
  }
  RotaryOptions::Scaling scaling;
  reader.Require("factor", &scaling.factor);
  reader.Require("low_freq_factor", &scaling.low_frequency_turns);
  reader.Require("high_freq_factor", &scaling.high_frequency_turns);
  reader.Require("original_max_position_embeddings", &scaling.original_context,
                 kMostTokensOfSample);
  if (scaling.high_frequency_turns <= scaling.low_frequency_turns) {
    reader.AddProblem("high_freq_factor", "is not above low_freq_factor");
  }
  rotary.scaling = scaling;
}

// Transformers 5 has all of it in "rope_parameters".
void ReadRotary(const Json& file, RotaryOptions& rotary, std::vector<std::string>& problems) {
  Reader(file, "", problems).Read("rope_theta", &rotary.theta);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!file.contains(key) || file[key].is_null()) continue;
    if (!file[key].is_object()) {
      problems.push_back(absl::StrCat("\"", key, "\" is no object"));
      continue;
    }
    Reader(file[key], absl::StrCat(key, "."), problems).Read("rope_theta", &rotary.theta);
    ReadScaling(file[key], key, rotary, problems);
    return;
  }
}

void ReadExperts(const Reader& reader, LlamaOptions& options) {
  ExpertsOptions experts = {.hidden = options.mlp_width};
  Routing& routing = experts.routing;
  reader.Read("num_local_experts", &routing.experts, kMostExperts);
  reader.Read("num_experts_per_tok", &routing.chosen, kMostExperts);
  if (routing.chosen > routing.experts) {
    reader.AddProblem("num_experts_per_tok", absl::StrCat("is ", routing.chosen, ", but there are ",
                                                          routing.experts, " experts"));
  }
  if (routing.experts * experts.hidden > kMostFeaturesOfExperts) {
    reader.AddProblem("intermediate_size",
                      absl::StrCat("is ", experts.hidden, ": all experts together can be ",
                                   kMostFeaturesOfExperts, " wide"));
  }
  options.experts = experts;
}

}  // namespace

std::string LlamaConfig(const LlamaOptions& options) {
  Json config = {{"architectures", {options.experts ? "MixtralForCausalLM" : "LlamaForCausalLM"}},
                 {"model_type", options.experts ? kMixtral : kLlama}};
  config.update(SettingsOf(options));
  config["head_dim"] = options.width / options.heads;
  config["max_position_embeddings"] = options.context;
  config["hidden_act"] = "silu";
  if (options.experts) {
    config["router_aux_loss_coef"] = options.experts->auxiliary_loss;
    config["sliding_window"] = nullptr;
  } else {
    config["attention_bias"] = false;
    config["mlp_bias"] = false;
  }
  config["torch_dtype"] = "float32";
  config["bos_token_id"] = nullptr;
  config["eos_token_id"] = nullptr;
  return config.dump(2) + "\n";
}

absl::StatusOr<LlamaOptions> ReadLlamaConfig(const std::string& text) {
  const Json file = ParseJson<Json>(text);
  if (!file.is_object()) return absl::InvalidArgumentError("is no JSON object");
  std::vector<std::string> problems;
  const Reader reader(file, "", problems);
  const bool is_mixtral = reader.Has("model_type") && file["model_type"] == kMixtral;
  if (!is_mixtral) {
    reader.Expect("model_type", kLlama, nullptr, "only \"llama\" and \"mixtral\" are read here");
  }
  LlamaOptions options;
  reader.Require("vocab_size", &options.vocabulary, kMostClasses);
  reader.Require("hidden_size", &options.width, kMostFeatures);
  reader.Require("intermediate_size", &options.mlp_width, kMostFeatures);
  if (is_mixtral) {
    ReadExperts(reader, options);
    reader.Expect("sliding_window", nullptr, nullptr, "attention sees all keys here");
  }
  reader.Require("num_hidden_layers", &options.layers, kMostLayers);
  reader.Require("num_attention_heads", &options.heads, kMostFeatures);
  options.key_heads = options.heads;
  reader.Read("num_key_value_heads", &options.key_heads, kMostFeatures);
  options.norm_epsilon = 1e-6;
  reader.Read("rms_norm_eps", &options.norm_epsilon);
  options.context = 2048;
  reader.Read("max_position_embeddings", &options.context, kMostTokensOfSample);
  const bool ties = file.contains("tie_word_embeddings") && file["tie_word_embeddings"] == true;
  options.head = ties ? LlamaOptions::Head::kTied : LlamaOptions::Head::kOwn;
  ReadRotary(file, options.rotary, problems);
  reader.Expect("hidden_act", "silu", "silu", "only \"silu\" is computed here");
  reader.Expect("attention_bias", false, false, "no biases are computed here");
  reader.Expect("mlp_bias", false, false, "no biases are computed here");
  if (options.width % (2 * options.heads) != 0) {
    reader.AddProblem("hidden_size", absl::StrCat("is ", options.width, ", which is no even ",
                                                  "multiple of ", options.heads, " heads"));
  } else {
    const int64_t head_width = options.width / options.heads;
    reader.Expect("head_dim", head_width, head_width,
                  "the width of a head is hidden_size / num_attention_heads here");
  }
  if (options.heads % options.key_heads != 0) {
    reader.AddProblem("num_key_value_heads",
                      absl::StrCat("is ", options.key_heads, ", which does not divide ",
                                   options.heads, " heads"));
  }
  if (problems.empty()) return options;
  return absl::InvalidArgumentError(
      absl::StrCat("cannot be read:\n  ", absl::StrJoin(problems, "\n  ")));
}

absl::Status CheckLlamaConfig(const std::string& text, const LlamaOptions& options) {
  LS_ASSIGN_OR_RETURN(const LlamaOptions found, ReadLlamaConfig(text));
  const Json theirs = SettingsOf(found), ours = SettingsOf(options);
  std::vector<std::string> faults;
  for (const auto& [key, value] : ours.items()) {
    const Json their_value = theirs.contains(key) ? theirs[key] : Json(nullptr);
    if (their_value == value) continue;
    faults.push_back(absl::StrCat("\"", key, "\" is ", their_value.dump(), ", but this model's is ",
                                  value.dump()));
  }
  if (found.experts && !options.experts) {
    faults.push_back("\"model_type\" is \"mixtral\", but this model has no experts");
  }
  if (faults.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("does not fit this model:\n  ", absl::StrJoin(faults, "\n  ")));
}

}  // namespace lockstep
