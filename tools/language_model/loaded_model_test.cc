#include "tools/language_model/loaded_model.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/base/file.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "models/transformer/gpt2_file.h"
#include "nlohmann/json.hpp"
#include "strategies/fsdp/fsdp.h"
#include "strategies/lora/lora.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const TransformerOptions kSizes = {
    .layers = 3, .heads = 4, .width = 24, .context = 7, .vocabulary = 11};

class LoadedModelTest : public ::testing::Test {
 protected:
  LoadedModelTest() : folder_(::testing::TempDir() + "/loaded_model_test") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  void Write(const std::string& name, const std::string& contents) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << contents;
  }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
};

// The bits of all parameters.
std::vector<std::vector<float>> Values(const Model& model) {
  std::vector<std::vector<float>> values;
  for (const Parameter* parameter : model.Parameters()) {
    const float* begin = parameter->value.data<float>();
    values.emplace_back(begin, begin + parameter->value.elements());
  }
  return values;
}

TEST_F(LoadedModelTest, AFileShowsItsSizes) {
  Write("weights.safetensors", Gpt2File(kSizes, "transformer.").Bytes());
  Write("config.json", R"({"n_head": 4, "n_embd": 24})");
  const auto loaded = LoadPublished(Path("weights.safetensors"), kernels_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->context, 7);
  EXPECT_EQ(loaded->vocabulary, 11);
  EXPECT_EQ(loaded->model.published.config, MakeTransformer(kSizes).published.config);
  EXPECT_EQ(loaded->model.ParameterCount(), MakeTransformer(kSizes).ParameterCount());
  EXPECT_EQ(Values(loaded->model)[0][25], Gpt2Value("embedding.token.weight", 1, 1));
}

// What is exported has the bytes of what was loaded: every tensor, its name, shape and place.
TEST_F(LoadedModelTest, WhatIsExportedIsWhatWasLoaded) {
  const std::string original = Gpt2File(kSizes).Bytes();
  Write("weights.safetensors", original);
  Write("config.json", R"({"n_head": 4})");
  const auto loaded = LoadPublished(Path("weights.safetensors"), kernels_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_EQ(ExportModel(*loaded, Path("made/here"), kFileBytes, kernels_), absl::OkStatus());
  const std::string exported = *ReadFile(Path("made/here/model.safetensors"));
  struct Parsed {
    explicit Parsed(const std::string& bytes) {
      uint64_t length = 0;
      for (size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(bytes[i]);
      header = nlohmann::json::parse(bytes.substr(8, length));
      header.erase("__metadata__");
      data = bytes.substr(8 + length);
    }
    std::string Bytes(const nlohmann::json& tensor) const {
      const size_t begin = tensor["data_offsets"][0], end = tensor["data_offsets"][1];
      return data.substr(begin, end - begin);
    }
    nlohmann::json header;
    std::string data;
  };
  const Parsed from(original), to(exported);
  ASSERT_EQ(from.header.size(), to.header.size());
  for (const auto& [name, tensor] : from.header.items()) {
    ASSERT_TRUE(to.header.contains(name)) << name;
    EXPECT_EQ(to.header[name]["shape"], tensor["shape"]) << name;
    EXPECT_TRUE(to.Bytes(to.header[name]) == from.Bytes(tensor)) << name;
  }
  const auto config = nlohmann::json::parse(*ReadFile(Path("made/here/config.json")));
  EXPECT_EQ(config["n_head"], 4);
  EXPECT_EQ(config["n_layer"], 3);
  EXPECT_EQ(config["n_embd"], 24);
  EXPECT_EQ(config["n_positions"], 7);
  EXPECT_EQ(config["vocab_size"], 11);
  // And loads again as it stands.
  const auto again = LoadPublished(Path("made/here/model.safetensors"), kernels_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(Values(again->model), Values(loaded->model));
}

// Whatever the strategy and precision: the same weights, those that the run ended with.
TEST_F(LoadedModelTest, ARunShowsItsModel) {
  std::vector<std::vector<std::vector<float>>> values;
  for (const bool sharded : {false, true}) {
    const auto strategy = sharded ? FsdpStrategy() : SingleStrategy();
    const Assignments ranks = {sharded ? "mesh.dp=2" : "cut.shards=2"};
    RunStrategy(strategy, MakeModel, SmallGptConfig(), With({"precision.compute=bf16"}, ranks));
    const auto loaded = LoadRun({.run = RunFolder()}, kernels_);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(loaded->context, 16);
    EXPECT_THAT(loaded->model.published.config, HasSubstr("\"n_head\": 2"));
    ASSERT_NE(loaded->dataset, nullptr);
    values.push_back(Values(loaded->model));
  }
  EXPECT_EQ(values[0], values[1]);
}

// A trained Llama goes to Hugging Face's files, several of them, and back, and starts another run;
// but not one that config.json disagrees with.
TEST_F(LoadedModelTest, ALlamaGoesThereAndBack) {
  RunStrategy(FsdpStrategy(), MakeModel, SmallLlamaConfig(), {"mesh.dp=2"});
  const auto trained = LoadRun({.run = RunFolder()}, kernels_);
  ASSERT_TRUE(trained.ok()) << trained.status();
  ASSERT_EQ(ExportModel(*trained, Path("llama"), /*file_bytes=*/20000, kernels_), absl::OkStatus());
  EXPECT_TRUE(std::filesystem::exists(Path("llama/model.safetensors.index.json")));
  const auto loaded = LoadPublished(Path("llama"), kernels_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->context, 16);
  EXPECT_EQ(Values(loaded->model), Values(trained->model));

  // A step of this learning rate moves nothing, under tensor parallelism neither.
  const Assignments init = {"model.init=" + Path("llama"), "train.steps=1", "mesh.tp=2",
                            "schedule.learning_rate=1e-30"};
  RunStrategy(FsdpStrategy(), MakeModel, SmallLlamaConfig(), init);
  const auto again = LoadRun({.run = RunFolder()}, kernels_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(Values(again->model), Values(trained->model));

  const absl::Status refused = FailStrategy(FsdpStrategy(), MakeModel, SmallLlamaConfig(),
                                            With(init, {"model.rope_theta=777"}));
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("model.init"), HasSubstr("config.json"),
                    HasSubstr("\"rope_theta\" is 10000.0, but this model's is 777.0")));
  auto config = nlohmann::json::parse(*ReadFile(Path("llama/config.json")));
  config["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", 2.0}};
  Write("llama/config.json", config.dump());
  EXPECT_THAT(std::string(LoadPublished(Path("llama"), kernels_).status().message()),
              AllOf(HasSubstr("llama/config.json\""), HasSubstr("\"rope_scaling.rope_type\" is "
                                                                "\"dynamic\"")));
}

// Each of these changes leaves all shapes as they are.
TEST_F(LoadedModelTest, RefusesAConfigurationOfAnotherModel) {
  const auto change = [](const std::string& from, const std::string& to) {
    const std::string path = RunFolder() + "/config.toml";
    std::string text = *ReadFile(path);
    ASSERT_EQ(absl::StrReplaceAll({{from, to}}, &text), 1) << text;
    std::ofstream(path) << text;
  };
  const auto expect_refused = [&](const std::string& from, const std::string& to) {
    change(from, to);
    const absl::Status status = LoadRun({.run = RunFolder()}, kernels_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("/checkpoints/step-"),
                      HasSubstr("was written by a model of another configuration (fingerprint "),
                      HasSubstr("/config.toml\" describes ("),
                      HasSubstr("[model] and [lora] of that file back")));
    // The weights that the run started from are in no checkpoint.
    EXPECT_TRUE(LoadRun({.run = RunFolder(), .checkpoint = kInitialWeights}, kernels_).ok());
    change(to, from);
  };
  RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), {"train.steps=1"});
  expect_refused("\nheads = 2\n", "\nheads = 4\n");
  RunStrategy(FsdpStrategy(), MakeModel, SmallLlamaConfig(), {"mesh.dp=2", "train.steps=1"});
  expect_refused("\nrope_theta = 10000.0\n", "\nrope_theta = 20000.0\n");
  expect_refused("\nnorm_epsilon = 1e-05\n", "\nnorm_epsilon = 1e-06\n");
  // How the run was trained may differ, and what it started from.
  change("\nsteps = 1\n", "\nsteps = 9\n");
  change("\ninit = \"\"\n", "\ninit = \"/elsewhere\"\n");
  const auto loaded = LoadRun({.run = RunFolder()}, kernels_);
  EXPECT_TRUE(loaded.ok()) << loaded.status();

  RunStrategy(LoraStrategy(), MakeModel, SmallGptConfig(),
              {"train.steps=1", "lora.layers=[\"*.qkv\"]", "lora.rank=2", "lora.alpha=3"});
  expect_refused("\nalpha = 3\n", "\nalpha = 4\n");
  const auto adapted = LoadRun({.run = RunFolder()}, kernels_);
  EXPECT_TRUE(adapted.ok()) << adapted.status();
}

TEST_F(LoadedModelTest, SaysWhatIsMissing) {
  const auto problem = [this](const std::string& path) {
    return std::string(LoadPublished(path, kernels_).status().message());
  };
  Write("weights.safetensors", Gpt2File(kSizes).Bytes());
  const std::string path = Path("weights.safetensors");
  EXPECT_THAT(problem(path), AllOf(HasSubstr("/config.json\""), HasSubstr("n_head")));
  for (const char* config : {"", "[]", "{\"n_head\": 1.5}", "{\"n_head\": -4}"}) {
    Write("config.json", config);
    EXPECT_THAT(problem(path), HasSubstr("is no JSON object with a whole number as \"n_head\""));
  }
  Write("config.json", "{\"n_head\": 5}");
  EXPECT_THAT(problem(path), HasSubstr("a width of 24 does not divide into 5 heads"));
  Write("config.json", "{\"n_head\": 4}");
  SafetensorsByHand file = Gpt2File(kSizes);
  file.Remove("h.1.attn.c_attn.bias");
  Write("weights.safetensors", file.Bytes());
  EXPECT_THAT(problem(path), HasSubstr("'h.1.attn.c_attn.bias' is missing"));
  file.Remove("wte.weight");
  Write("weights.safetensors", file.Bytes());
  EXPECT_THAT(problem(path), HasSubstr("holds no GPT-2"));

  const auto run_problem = [this](const RunSource& source) {
    return std::string(LoadRun(source, kernels_).status().message());
  };
  EXPECT_THAT(run_problem({.run = Path("none")}), HasSubstr("/none/config.toml"));
  RunStrategy(SingleStrategy(), MakeModel, SmallResNetConfig(), {"train.steps=1"});
  EXPECT_THAT(run_problem({.run = RunFolder()}), HasSubstr("has trained no language model"));
  RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), {"checkpoint.keep=0"});
  EXPECT_THAT(run_problem({.run = RunFolder()}), HasSubstr("holds no checkpoint"));
  EXPECT_THAT(run_problem({.run = RunFolder(), .checkpoint = path}),
              HasSubstr("does not fit this model"));
}

}  // namespace
}  // namespace lockstep
