#include "tools/language_model/peft.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/file.h"
#include "core/checkpoint/safetensors.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/nn/lora.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "models/transformer/transformer.h"
#include "nlohmann/json.hpp"
#include "strategies/fsdp/fsdp.h"
#include "strategies/lora/lora.h"
#include "strategies/testing/run_strategy.h"
#include "tools/language_model/loaded_model.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class PeftTest : public ::testing::Test {
 protected:
  PeftTest() : folder_(::testing::TempDir() + "/peft_test") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  LoadedModel Trained(const std::string& layers, const Assignments& more = {},
                      const std::string& config = SmallGptConfig()) {
    RunStrategy(FsdpStrategy(), MakeModel, config,
                With({"mesh.dp=2", "lora.layers=" + layers, "lora.rank=2", "lora.alpha=3"}, more));
    auto loaded = LoadRun({.run = RunFolder()}, kernels_);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return *std::move(loaded);
  }

  std::vector<float> Logits(const Model& model) {
    std::vector<int32_t> ids(2 * 16);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 5 % 16);
    const Tensor inputs = kernels_.Empty({2, 16}, DType::kI32);
    kernels_.CopyFromHost(ids.data(), inputs);
    Tape tape(kernels_, Tape::Recording::kOff);
    Pass pass{.tape = tape, .mode = Pass::Mode::kEvaluate, .tokens = {2, 16}};
    Variables values = {Variable(inputs)};
    for (const auto& block : model.blocks) values = block->Run(pass, std::move(values));
    const float* begin = values[0].value.data<float>();
    return {begin, begin + values[0].value.elements()};
  }

  static void ExpectNear(const std::vector<float>& expected, const std::vector<float>& actual) {
    ASSERT_EQ(expected.size(), actual.size());
    float largest = 0, difference = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      difference = std::max(difference, std::abs(expected[i] - actual[i]));
    }
    EXPECT_LE(difference, 1e-6f * largest);
  }

  // The base alone, as Hugging Face's weights, with the adapters of a folder added.
  LoadedModel BaseAnd(const LoadedModel& trained, const std::string& adapters) {
    EXPECT_EQ(ExportModel(trained, Path("base"), kFileBytes, kernels_), absl::OkStatus());
    auto base = LoadPublished(Path("base/model.safetensors"), kernels_);
    EXPECT_TRUE(base.ok()) << base.status();
    const absl::Status added = AddPeftAdapters(base->model, adapters, kernels_);
    EXPECT_EQ(added, absl::OkStatus());
    return *std::move(base);
  }

  std::string folder_;
  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
};

// Llama's projections are modules of their own: adapters of single ones stay what they are, one of
// the packed layer becomes one for each.
TEST_F(PeftTest, ProjectionsThatAreModulesHaveAdaptersOfTheirOwn) {
  const LoadedModel trained =
      Trained(R"(["blocks.0.attention.qkv.q", "blocks.1.attention.qkv", "*.gate_up.up"])", {},
              SmallLlamaConfig());
  ASSERT_EQ(ExportPeft(trained.model, Path("peft"), kernels_), absl::OkStatus());
  const auto config = nlohmann::json::parse(*ReadFile(Path("peft/adapter_config.json")));
  EXPECT_EQ(config["r"], 2);
  EXPECT_EQ(config["fan_in_fan_out"], false);
  EXPECT_THAT(
      config["target_modules"],
      UnorderedElementsAre("model.layers.0.self_attn.q_proj", "model.layers.0.mlp.up_proj",
                           "model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.k_proj",
                           "model.layers.1.self_attn.v_proj", "model.layers.1.mlp.up_proj"));
  const auto reader = SafetensorsReader::Open(Path("peft/adapter_model.safetensors"));
  ASSERT_TRUE(reader.ok());
  const SafetensorsTensor* b =
      reader->Find("base_model.model.model.layers.1.self_attn.k_proj.lora_B.weight");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->shape, (std::vector<int64_t>{16, 2}));
  ExpectNear(Logits(trained.model), Logits(BaseAnd(trained, Path("peft")).model));
}

// Each expert's projections are modules too. Gate and up have one A, and the rows of the weight
// between hidden features and outputs are its inputs.
TEST_F(PeftTest, ExpertsAreModulesWithAdaptersOfTheirOwn) {
  LoadedModel trained =
      Trained(R"(["blocks.1.network.experts"])", {"model.experts.count=2"}, SmallLlamaConfig());
  ASSERT_EQ(ExportPeft(trained.model, Path("peft"), kernels_), absl::OkStatus());
  const auto config = nlohmann::json::parse(*ReadFile(Path("peft/adapter_config.json")));
  EXPECT_EQ(config["fan_in_fan_out"], false);
  const std::string experts = "model.layers.1.block_sparse_moe.experts.";
  EXPECT_THAT(config["target_modules"],
              UnorderedElementsAre(experts + "0.w1", experts + "0.w3", experts + "0.w2",
                                   experts + "1.w1", experts + "1.w3", experts + "1.w2"));
  const auto reader = SafetensorsReader::Open(Path("peft/adapter_model.safetensors"));
  ASSERT_TRUE(reader.ok());
  const auto values = [&](const std::string& name) {
    const SafetensorsTensor* tensor = reader->Find("base_model.model." + experts + name);
    CHECK(tensor != nullptr) << name;
    std::vector<float> numbers(tensor->bytes / sizeof(float));
    const absl::Status read = reader->Read(*tensor, std::as_writable_bytes(std::span(numbers)));
    CHECK(read.ok()) << read;
    return std::pair(tensor->shape, numbers);
  };
  EXPECT_EQ(values("1.w1.lora_A.weight"), values("1.w3.lora_A.weight"));
  // What a merge adds to w2 of the second expert, [out, in], from the file's factors.
  const auto [a_shape, a] = values("1.w2.lora_A.weight");
  const auto [b_shape, b] = values("1.w2.lora_B.weight");
  const int64_t in = a_shape[1], out = b_shape[0];
  EXPECT_EQ(a_shape, (std::vector<int64_t>{2, in}));
  EXPECT_EQ(b_shape, (std::vector<int64_t>{out, 2}));
  const auto weight = [&] {
    std::vector<float> all;
    for (const Parameter* parameter : trained.model.Parameters()) {
      if (parameter->name != "blocks.1.network.experts.down.weight") continue;
      all.resize(static_cast<size_t>(parameter->value.elements()));
      kernels_.CopyToHost(parameter->value, all.data());
    }
    return all;
  };
  const std::vector<float> before = weight(), unmerged = Logits(trained.model);
  MergedAdapters merged(trained.model, kernels_);
  const std::vector<float> after = weight();
  double largest = 0;
  for (int64_t i = 0; i < in; ++i) {
    for (int64_t o = 0; o < out; ++o) {
      const double added = 1.5 * (double{a[i]} * b[o * 2] + double{a[in + i]} * b[o * 2 + 1]);
      const size_t at = (in + i) * out + o;
      EXPECT_NEAR(after[at] - before[at], added, 1e-6);
      largest = std::max(largest, std::abs(added));
    }
  }
  EXPECT_GT(largest, 1e-5) << "nothing was trained";
  ExpectNear(unmerged, Logits(trained.model));
  EXPECT_EQ(ExportModel(trained, Path("base"), kFileBytes, kernels_), absl::OkStatus());
  auto base = LoadPublished(Path("base/model.safetensors"), kernels_);
  ASSERT_TRUE(base.ok()) << base.status();
  EXPECT_THAT(std::string(AddPeftAdapters(base->model, Path("peft"), kernels_).message()),
              HasSubstr("is of an expert, whose adapters are not read"));
}

// Queries and values as one adapter of the packed module, with nothing for the keys.
TEST_F(PeftTest, PartsOfAPackedProjectionAreOneAdapterThere) {
  const LoadedModel trained = Trained(R"(["*.qkv.q", "*.qkv.v"])");
  ASSERT_EQ(ExportPeft(trained.model, Path("peft"), kernels_), absl::OkStatus());
  const auto config = nlohmann::json::parse(*ReadFile(Path("peft/adapter_config.json")));
  EXPECT_EQ(config["peft_type"], "LORA");
  EXPECT_EQ(config["task_type"], "CAUSAL_LM");
  EXPECT_EQ(config["r"], 4);
  EXPECT_EQ(config["lora_alpha"], 6);
  EXPECT_EQ(config["bias"], "none");
  EXPECT_EQ(config["fan_in_fan_out"], true);
  EXPECT_THAT(config["target_modules"],
              UnorderedElementsAre("transformer.h.0.attn.c_attn", "transformer.h.1.attn.c_attn"));
  const auto reader = SafetensorsReader::Open(Path("peft/adapter_model.safetensors"));
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->tensors().size(), 4u);
  const SafetensorsTensor* a =
      reader->Find("base_model.model.transformer.h.1.attn.c_attn.lora_A.weight");
  const SafetensorsTensor* b =
      reader->Find("base_model.model.transformer.h.1.attn.c_attn.lora_B.weight");
  ASSERT_NE(a, nullptr);
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(a->shape, (std::vector<int64_t>{4, 32}));
  EXPECT_EQ(b->shape, (std::vector<int64_t>{96, 4}));
  std::vector<float> values(96 * 4);
  ASSERT_TRUE(reader->Read(*b, std::as_writable_bytes(std::span(values))).ok());
  for (int64_t row = 0; row < 96; ++row) {
    for (int64_t column = 0; column < 4; ++column) {
      const bool is_q = row < 32 && column < 2, is_v = row >= 64 && column >= 2;
      EXPECT_EQ(values[row * 4 + column] != 0, is_q || is_v) << row << ", " << column;
    }
  }
  ExpectNear(Logits(trained.model), Logits(BaseAnd(trained, Path("peft")).model));
}

TEST_F(PeftTest, LayersOfAllKindsComeBack) {
  const LoadedModel trained =
      Trained(R"(["*.attention", "blocks.1.network", "blocks.0.attention.qkv.k"])",
              {"lora.rank_stabilised=true"});
  ASSERT_EQ(ExportPeft(trained.model, Path("peft"), kernels_), absl::OkStatus());
  ExpectNear(Logits(trained.model), Logits(BaseAnd(trained, Path("peft")).model));
  // Another number of parts has another rank.
  const LoadedModel mixed = Trained(R"(["blocks.0.attention.qkv.q", "blocks.1.attention.qkv",
                                        "blocks.1.attention.projection"])");
  std::filesystem::remove_all(Path("peft"));
  ASSERT_EQ(ExportPeft(mixed.model, Path("peft"), kernels_), absl::OkStatus());
  ExpectNear(Logits(mixed.model), Logits(BaseAnd(mixed, Path("peft")).model));
  const LoadedModel parts = Trained(
      R"(["blocks.0.attention.qkv.q", "blocks.1.attention.qkv.k", "blocks.1.attention.qkv.v"])");
  std::filesystem::remove_all(Path("peft"));
  ASSERT_EQ(ExportPeft(parts.model, Path("peft"), kernels_), absl::OkStatus());
  const auto config = nlohmann::json::parse(*ReadFile(Path("peft/adapter_config.json")));
  EXPECT_EQ(config["r"], 2);
  EXPECT_EQ(config["rank_pattern"]["transformer.h.1.attn.c_attn"], 4);
  EXPECT_EQ(config["alpha_pattern"]["transformer.h.1.attn.c_attn"], 6);
  ExpectNear(Logits(parts.model), Logits(BaseAnd(parts, Path("peft")).model));
}

TEST_F(PeftTest, MergedWeightsComputeTheSame) {
  LoadedModel trained = Trained(R"(["blocks.*"])");
  const std::vector<float> logits = Logits(trained.model);
  MergedAdapters merged(trained.model, kernels_);
  ExpectNear(logits, Logits(trained.model));
  ASSERT_EQ(ExportModel(trained, Path("merged"), kFileBytes, kernels_), absl::OkStatus());
  const auto loaded = LoadPublished(Path("merged/model.safetensors"), kernels_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ExpectNear(logits, Logits(loaded->model));
}

// Trained on a base that was rounded: what is loaded is that.
TEST_F(PeftTest, ARunInSixteenBitsShowsItsBase) {
  Trained(R"(["*.qkv"])", {"precision.compute=bf16"});
}

TEST_F(PeftTest, DamagedAdaptersAreNotRead) {
  const LoadedModel trained = Trained(R"(["*.qkv"])");
  ASSERT_EQ(ExportPeft(trained.model, Path("peft"), kernels_), absl::OkStatus());
  ASSERT_EQ(ExportModel(trained, Path("base"), kFileBytes, kernels_), absl::OkStatus());
  const std::string file = Path("peft/adapter_model.safetensors");
  std::string bytes = *ReadFile(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);  // the exponent of the last number
  std::ofstream(file, std::ios::binary) << bytes;
  auto base = LoadPublished(Path("base/model.safetensors"), kernels_);
  ASSERT_TRUE(base.ok()) << base.status();
  const absl::Status status = AddPeftAdapters(base->model, Path("peft"), kernels_);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(file), HasSubstr("h.1.attn.c_attn.lora_B.weight' do not have")));
}

TEST_F(PeftTest, WhatIsNotReadIsRefused) {
  const LoadedModel trained = Trained(R"(["*.qkv"])");
  ASSERT_EQ(ExportPeft(trained.model, Path("peft"), kernels_), absl::OkStatus());
  ASSERT_EQ(ExportModel(trained, Path("base"), kFileBytes, kernels_), absl::OkStatus());
  const auto config = nlohmann::json::parse(*ReadFile(Path("peft/adapter_config.json")));
  const auto message = [&](const std::string& key, const nlohmann::json& value) {
    auto changed = config;
    changed[key] = value;
    std::ofstream(Path("peft/adapter_config.json")) << changed.dump();
    auto base = LoadPublished(Path("base/model.safetensors"), kernels_);
    const absl::Status status = AddPeftAdapters(base->model, Path("peft"), kernels_);
    EXPECT_FALSE(status.ok()) << key;
    EXPECT_FALSE(HasAdapters(base->model));
    return std::string(status.message());
  };
  EXPECT_THAT(message("peft_type", "LOHA"), HasSubstr("peft_type is not \"LORA\""));
  EXPECT_THAT(message("bias", "all"), HasSubstr("trained biases are not read"));
  EXPECT_THAT(message("use_dora", true), HasSubstr("use_dora is true"));
  EXPECT_THAT(message("modules_to_save", {"lm_head"}), HasSubstr("modules_to_save"));
  EXPECT_THAT(message("lora_alpha", "much"), HasSubstr("lora_alpha"));
  std::ofstream(Path("peft/adapter_config.json")) << config.dump();
  Model other = MakeTransformer({.layers = 1, .heads = 2, .width = 16, .context = 4});
  EXPECT_THAT(std::string(AddPeftAdapters(other, Path("peft"), kernels_).message()),
              AllOf(HasSubstr("'transformer.h.0.attn.c_attn' has factors [2, 32] and [96, 2]"),
                    HasSubstr("2 of its tensors are no adapters of this model's layers")));
  const Model plain = MakeTransformer({});
  EXPECT_THAT(std::string(ExportPeft(plain, Path("none"), kernels_).message()),
              HasSubstr("has no adapters"));
}

}  // namespace
}  // namespace lockstep
