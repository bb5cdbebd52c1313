#include "models/transformer/llama_config.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

const LlamaOptions kOptions = {.layers = 2,
                               .heads = 6,
                               .key_heads = 2,
                               .width = 48,
                               .mlp_width = 80,
                               .context = 32,
                               .vocabulary = 100,
                               .norm_epsilon = 1e-6,
                               .rotary = {.theta = 5e5, .scaling = RotaryOptions::Scaling{}},
                               .head = LlamaOptions::Head::kTied};

// As Llama 3.2 1B is published, without what does not concern its function.
constexpr char kPublished1B[] = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu",
  "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
  "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
  "rms_norm_eps": 1e-05,
  "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": true, "vocab_size": 128256})";

Json Changed(const std::string& key, const Json& value) {
  Json config = Json::parse(LlamaConfig(kOptions));
  config[key] = value;
  return config;
}

std::string Problem(const Json& config) {
  return std::string(ReadLlamaConfig(config.dump()).status().message());
}

TEST(LlamaConfigTest, ReadsWhatItWrites) {
  const auto read = ReadLlamaConfig(LlamaConfig(kOptions));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(LlamaConfig(*read), LlamaConfig(kOptions));
  EXPECT_EQ(CheckLlamaConfig(LlamaConfig(kOptions), kOptions), absl::OkStatus());
  LlamaOptions plain = kOptions;
  plain.rotary.scaling.reset();
  plain.head = LlamaOptions::Head::kOwn;
  EXPECT_EQ(CheckLlamaConfig(LlamaConfig(plain), plain), absl::OkStatus());
}

TEST(LlamaConfigTest, ReadsPublishedModels) {
  const auto read = ReadLlamaConfig(kPublished1B);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(MakeLlama(*read).ParameterCount(), 1235814400);
  EXPECT_EQ(read->context, 131072);
  EXPECT_EQ(read->rotary.theta, 5e5);
  ASSERT_TRUE(read->rotary.scaling.has_value());
  EXPECT_EQ(read->rotary.scaling->factor, 32);
  EXPECT_EQ(read->rotary.scaling->original_context, 8192);
}

// Transformers 5 writes one object; older files call the type "type"; what is left out has
// transformers' default.
TEST(LlamaConfigTest, ReadsOtherWaysToSayIt) {
  Json config = Json::parse(LlamaConfig(kOptions));
  config["rope_parameters"] = config["rope_scaling"];
  config["rope_parameters"]["rope_theta"] = config["rope_theta"];
  config.erase("rope_scaling");
  config.erase("rope_theta");
  EXPECT_EQ(CheckLlamaConfig(config.dump(), kOptions), absl::OkStatus());
  config["rope_parameters"]["type"] = "llama3";
  config["rope_parameters"].erase("rope_type");
  EXPECT_EQ(CheckLlamaConfig(config.dump(), kOptions), absl::OkStatus());

  const auto least = ReadLlamaConfig(
      R"({"model_type": "llama", "vocab_size": 9, "hidden_size": 8, "intermediate_size": 7,
          "num_hidden_layers": 1, "num_attention_heads": 2})");
  ASSERT_TRUE(least.ok()) << least.status();
  EXPECT_EQ(least->key_heads, 2);
  EXPECT_EQ(least->norm_epsilon, 1e-6);
  EXPECT_EQ(least->rotary.theta, 10000);
  EXPECT_FALSE(least->rotary.scaling.has_value());
  EXPECT_EQ(least->head, LlamaOptions::Head::kOwn);
}

TEST(LlamaConfigTest, NamesTheKeysThatDisagree) {
  Json config = Changed("hidden_size", 96);
  config["rope_scaling"]["factor"] = 2.0;
  EXPECT_EQ(CheckLlamaConfig(config.dump(), kOptions).message(),
            Problem(config));  // the width of a head is no longer that of "head_dim"
  config["head_dim"] = 16;
  const std::string message(CheckLlamaConfig(config.dump(), kOptions).message());
  EXPECT_THAT(message,
              AllOf(HasSubstr("does not fit this model:\n  \"hidden_size\" is 96, but this "
                              "model's is 48\n  \"rope_scaling\" is"),
                    HasSubstr("\"factor\":2.0"), HasSubstr("\"factor\":8.0")));
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, Json>>{{"vocab_size", 101},
                                                 {"intermediate_size", 81},
                                                 {"num_hidden_layers", 3},
                                                 {"num_key_value_heads", 3},
                                                 {"rms_norm_eps", 1e-5},
                                                 {"rope_theta", 1e4},
                                                 {"rope_scaling", nullptr},
                                                 {"tie_word_embeddings", false}}) {
    EXPECT_THAT(std::string(CheckLlamaConfig(Changed(key, value).dump(), kOptions).message()),
                HasSubstr("\n  \"" + key + "\" is "));
  }
  // A longer context is none of the function.
  EXPECT_EQ(CheckLlamaConfig(Changed("max_position_embeddings", 64).dump(), kOptions),
            absl::OkStatus());
}

TEST(LlamaConfigTest, WritesAndReadsMixtrals) {
  LlamaOptions options = kOptions;
  options.experts = ExpertsOptions{.routing = {.experts = 6, .chosen = 3}, .hidden = 40};
  const Json config = Json::parse(LlamaConfig(options));
  EXPECT_EQ(config["model_type"], "mixtral");
  EXPECT_EQ(config["intermediate_size"], 40);
  EXPECT_EQ(CheckLlamaConfig(config.dump(), options), absl::OkStatus());
  // Neither is the other.
  EXPECT_THAT(std::string(CheckLlamaConfig(config.dump(), kOptions).message()),
              HasSubstr("this model has no experts"));
  EXPECT_THAT(std::string(CheckLlamaConfig(LlamaConfig(kOptions), options).message()),
              HasSubstr("\"num_local_experts\" is null, but this model's is 6"));
  Json broken = config;
  broken["num_experts_per_tok"] = 7;
  EXPECT_THAT(Problem(broken), HasSubstr("\"num_experts_per_tok\" is 7, but there are 6 experts"));
  broken = config;
  broken["sliding_window"] = 4096;
  EXPECT_THAT(Problem(broken), HasSubstr("\"sliding_window\" is 4096"));
}

TEST(LlamaConfigTest, RefusesWhatIsNotComputed) {
  EXPECT_THAT(Problem(Changed("model_type", "mistral")),
              HasSubstr("\"model_type\" is \"mistral\""));
  EXPECT_THAT(Problem(Changed("attention_bias", true)), HasSubstr("\"attention_bias\" is true"));
  EXPECT_THAT(Problem(Changed("mlp_bias", true)), HasSubstr("\"mlp_bias\" is true"));
  EXPECT_THAT(Problem(Changed("hidden_act", "gelu")), HasSubstr("\"hidden_act\" is \"gelu\""));
  EXPECT_THAT(Problem(Changed("head_dim", 16)), HasSubstr("\"head_dim\" is 16"));
  EXPECT_THAT(Problem(Changed("num_key_value_heads", 4)),
              HasSubstr("\"num_key_value_heads\" is 4, which does not divide 6 heads"));
  EXPECT_THAT(Problem(Changed("num_attention_heads", 5)), HasSubstr("no even multiple of 5 heads"));
  EXPECT_THAT(Problem(Changed("rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}})),
              HasSubstr("\"rope_scaling.rope_type\" is \"yarn\", but the types of rotary positions "
                        "here are \"default\" and \"llama3\""));
  EXPECT_THAT(Problem(Changed("rope_scaling", {{"type", "linear"}, {"factor", 4.0}})),
              HasSubstr("\"rope_scaling.type\" is \"linear\""));
  EXPECT_THAT(Problem(Changed("rope_scaling", {{"rope_type", "llama3"}, {"factor", 4.0}})),
              HasSubstr("\"rope_scaling.low_freq_factor\" is missing"));
  EXPECT_THAT(Problem(Changed("vocab_size", "many")), HasSubstr("\"vocab_size\" is no positive"));
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "max_position_embeddings"}) {
    EXPECT_THAT(
        Problem(Changed(key, uint64_t{1} << 62)),
        HasSubstr(absl::StrCat("\"", key, "\" is 4611686018427387904, but can be at most")));
    EXPECT_THAT(Problem(Changed(key, ~uint64_t{0})),
                HasSubstr(absl::StrCat("\"", key, "\" is 18446744073709551615, but can be")));
    EXPECT_THAT(Problem(Changed(key, -1)),
                HasSubstr(absl::StrCat("\"", key, "\" is no positive whole number")));
  }
  Json config = Json::parse(LlamaConfig(kOptions));
  config.erase("vocab_size");
  EXPECT_THAT(Problem(config), HasSubstr("\"vocab_size\" is missing"));
  EXPECT_EQ(ReadLlamaConfig("[]").status().message(), "is no JSON object");
}

}  // namespace
}  // namespace lockstep
