#include "models/transformer/llama.h"

#include <numbers>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/transformer/llama_names.h"

namespace lockstep {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

LlamaOptions Published(int64_t layers, int64_t heads, int64_t width, int64_t mlp_width) {
  return {.layers = layers,
          .heads = heads,
          .key_heads = 8,
          .width = width,
          .mlp_width = mlp_width,
          .context = 8192,
          .vocabulary = 128256};
}

// Building a model allocates nothing, however large it is.
TEST(LlamaTest, HasThePublishedNumbersOfParameters) {
  LlamaOptions of_1b = Published(16, 32, 2048, 8192);
  of_1b.head = LlamaOptions::Head::kTied;
  EXPECT_EQ(MakeLlama(of_1b).ParameterCount(), 1235814400);
  EXPECT_EQ(MakeLlama(Published(32, 32, 4096, 14336)).ParameterCount(), 8030261248);
  EXPECT_EQ(MakeLlama(Published(80, 64, 8192, 28672)).ParameterCount(), 70553706496);
  EXPECT_EQ(MakeLlama(Published(126, 128, 16384, 53248)).ParameterCount(), 405853388800);
}

// Mixtral 8x7B's and 8x22B's.
TEST(LlamaTest, MixturesHaveThePublishedNumbersOfParameters) {
  LlamaOptions mixtral = Published(32, 32, 4096, 0);
  mixtral.vocabulary = 32000;
  mixtral.experts = ExpertsOptions{.routing = {.experts = 8, .chosen = 2}, .hidden = 14336};
  EXPECT_EQ(MakeLlama(mixtral).ParameterCount(), 46702792704);
  EXPECT_EQ(MakeLlama(mixtral).ActiveCount(), 12879925248);
  LlamaOptions larger = Published(56, 48, 6144, 0);
  larger.vocabulary = 32768;
  larger.experts = ExpertsOptions{.routing = {.experts = 8, .chosen = 2}, .hidden = 16384};
  EXPECT_EQ(MakeLlama(larger).ParameterCount(), 140630071296);
  EXPECT_EQ(MakeLlama(Published(1, 8, 64, 64)).ActiveCount(),
            MakeLlama(Published(1, 8, 64, 64)).ParameterCount());
}

// A token is multiplied by the router, by the experts that it chooses and by the shared ones.
TEST(LlamaTest, CountsTheWorkOfChosenExperts) {
  LlamaOptions options = Published(2, 8, 64, 0);
  options.experts = ExpertsOptions{.routing = {.experts = 16, .chosen = 3}, .hidden = 40};
  options.shared_width = 56;
  int64_t macs = 0;
  const auto linear = [&](int64_t in, int64_t out) { macs += options.context * in * out; };
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (int i = 0; i < 4; ++i) linear(64, 64);  // q, k, v, and the projection
    for (int i = 0; i < 2; ++i) macs += 64 * 8192 * int64_t{8192};
    linear(64, 16);
    for (int expert = 0; expert < 3; ++expert) {
      for (int i = 0; i < 3; ++i) linear(64, 40);
    }
    for (int i = 0; i < 3; ++i) linear(64, 56);
  }
  linear(64, 128256);
  EXPECT_EQ(MakeLlama(options).ForwardMacsPerSample(), macs);
}

// Multiply-adds by looping over the layers: every matrix for every token, and queries with keys and
// probabilities with values for every pair of tokens and each head.
TEST(LlamaTest, CountsItsWork) {
  const LlamaOptions options = Published(32, 32, 4096, 14336);
  int64_t macs = 0;
  const auto linear = [&](int64_t in, int64_t out) { macs += options.context * in * out; };
  for (int64_t layer = 0; layer < 32; ++layer) {
    linear(4096, 4096);                                                   // q
    for (int i = 0; i < 2; ++i) linear(4096, 1024);                       // k, v
    for (int i = 0; i < 2; ++i) macs += 32 * 128 * 8192 * int64_t{8192};  // scores, values
    linear(4096, 4096);
    for (int i = 0; i < 3; ++i) linear(4096, 14336);
  }
  linear(4096, 128256);
  EXPECT_EQ(MakeLlama(options).ForwardMacsPerSample(), macs);
}

TEST(LlamaTest, ParametersStandInOrderOfUse) {
  const Model model = MakeLlama({.layers = 1});
  std::vector<std::string> names;
  for (const Parameter* parameter : model.Parameters()) {
    names.push_back(parameter->name);
    EXPECT_EQ(parameter->tied_to, nullptr) << parameter->name;
  }
  EXPECT_THAT(
      names, ElementsAre("embedding.token.weight", "blocks.0.attention.norm.weight",
                         "blocks.0.attention.qkv.weight", "blocks.0.attention.projection.weight",
                         "blocks.0.network.norm.weight", "blocks.0.network.gate_up.weight",
                         "blocks.0.network.down.weight", "head.norm.weight", "head.logits.weight"));
  const Model tied = MakeLlama({.layers = 1, .head = LlamaOptions::Head::kTied});
  EXPECT_EQ(tied.Parameters().back()->tied_to, tied.Parameters().front());
}

// Each element of each parameter that owns its value has one place in the files.
TEST(LlamaTest, PublishedTensorsHaveAllRows) {
  using Head = LlamaOptions::Head;
  const ExpertsOptions experts = {.routing = {.experts = 3, .chosen = 2}, .hidden = 40};
  for (const auto& [head, mixture] :
       {std::pair<Head, std::optional<ExpertsOptions>>(Head::kOwn, std::nullopt),
        {Head::kTied, std::nullopt},
        {Head::kOwn, experts}}) {
    const LlamaOptions options = {.layers = 2,
                                  .heads = 6,
                                  .key_heads = 2,
                                  .width = 48,
                                  .mlp_width = 80,
                                  .head = head,
                                  .experts = mixture};
    const Model model = MakeLlama(options);
    for (const Parameter* parameter : model.Parameters()) {
      if (parameter->tied_to != nullptr) continue;
      int64_t rows = 0;
      for (const PublishedTensor& tensor : model.published.tensors) {
        if (tensor.parameter != parameter->name) continue;
        const Range own = tensor.of_parameter;
        EXPECT_EQ(own.first, own.count > 0 ? rows : 0) << tensor.name;
        rows += own.count > 0 ? own.count : parameter->shape[0];
      }
      EXPECT_EQ(rows, parameter->shape[0]) << parameter->name;
    }
  }
}

// transformers computes no sigmoids and no shared experts in Mixtral: such models have no names.
TEST(LlamaTest, OnlyMixtralsMixturesArePublished) {
  LlamaOptions options = {.experts = ExpertsOptions{.hidden = 64}};
  EXPECT_FALSE(MakeLlama(options).published.tensors.empty());
  options.shared_width = 64;
  EXPECT_TRUE(MakeLlama(options).published.tensors.empty());
  options.shared_width = 0;
  options.experts->routing.scores = Routing::Scores::kSigmoid;
  EXPECT_TRUE(MakeLlama(options).published.tensors.empty());
}

TEST(RotaryFrequenciesTest, FallFromOneByThePowersOfTheta) {
  const std::vector<double> frequencies = RotaryFrequencies(8, {.theta = 10000});
  EXPECT_THAT(frequencies, ElementsAre(1, DoubleNear(0.1, 1e-16), DoubleNear(0.01, 1e-17),
                                       DoubleNear(0.001, 1e-18)));
}

// Planes that turn often in the original context stay, those that turn rarely become slower by the
// factor, and between the two lies what the turns interpolate.
TEST(RotaryFrequenciesTest, Llama3ScalesSlowPlanes) {
  RotaryOptions options = {.theta = 500000, .scaling = RotaryOptions::Scaling{}};
  const std::vector<double> scaled = RotaryFrequencies(128, options);
  options.scaling.reset();
  const std::vector<double> plain = RotaryFrequencies(128, options);
  int kinds[3] = {};
  for (size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = 2 * std::numbers::pi / plain[i];
    double expected = plain[i];
    if (wavelength > 8192.0 / 1) {
      expected = plain[i] / 8;
      ++kinds[0];
    } else if (wavelength > 8192.0 / 4) {
      const double smooth = (8192.0 / wavelength - 1) / (4 - 1);
      expected = (1 - smooth) * plain[i] / 8 + smooth * plain[i];
      ++kinds[1];
    } else {
      ++kinds[2];
    }
    EXPECT_NEAR(scaled[i], expected, 1e-14 * expected) << i;
  }
  EXPECT_THAT(kinds, testing::Each(testing::Gt(3)));
}

}  // namespace
}  // namespace lockstep
