#include "tools/generate/continuation.h"

#include <algorithm>
#include <iterator>  // std::ssize
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/autograd/testing/arrays.h"
#include "core/base/philox.h"
#include "core/base/status.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/nn/lora.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/testing/comparison.h"
#include "models/testing/double_graph.h"
#include "models/transformer/llama.h"
#include "models/transformer/transformer.h"

namespace lockstep {
namespace {

using Tokens = std::vector<int32_t>;
using Value = DoubleGraph::Value;

const TransformerOptions kSizes = {
    .layers = 2, .heads = 2, .width = 16, .context = 6, .vocabulary = 13, .dropout = 0.3f};

class ContinueTest : public ::testing::Test {
 protected:
  ContinueTest() : model_(MakeTransformer(kSizes)) {
    Materialize(model_.Parameters(), /*seed=*/4, kernels_);
    Perturb(kernels_, model_.Parameters(), 0.4f);
  }

  Tokens Run(const Tokens& text, const ContinuationOptions& options) {
    Tokens added;
    Continue(model_, kernels_, text, options, [&](int32_t token) { added.push_back(token); });
    return added;
  }

  // The likeliest token after a text that fits into the context, from the formulas of the papers in
  // double precision. No dropout: that is for training.
  int32_t Likeliest(const Tokens& text) {
    DoubleGraph g;
    const DoubleParameters p(g, kernels_, model_.Parameters());
    const auto time = static_cast<int64_t>(text.size());
    const auto linear = [&](const std::string& name, Value x) {
      return g.Linear(x, p[name + ".weight"], p[name + ".bias"]);
    };
    const auto norm = [&](const std::string& name, Value x) {
      return g.LayerNorm(x, p[name + ".weight"], p[name + ".bias"], 1e-5f);
    };
    Value x = g.Embedding(text, p["embedding.token.weight"], {1, time, kSizes.width});
    x = g.AddPositions(x, p["embedding.position.weight"]);
    for (int64_t i = 0; i < kSizes.layers; ++i) {
      const std::string attention = absl::StrCat("blocks.", i, ".attention");
      const std::string mlp = absl::StrCat("blocks.", i, ".network");
      Value y = linear(attention + ".qkv", norm(attention + ".norm", x));
      y = g.SelfAttention({.heads = kSizes.heads,
                           .head_width = kSizes.width / kSizes.heads,
                           .dropout = {},
                           .total_heads = kSizes.heads},
                          y);
      x = g.Add(x, linear(attention + ".projection", y));
      y = g.Gelu(linear(mlp + ".up", norm(mlp + ".norm", x)));
      x = g.Add(x, linear(mlp + ".down", y));
    }
    const Value logits =
        g.Linear(norm("head.norm", x), p["head.logits.weight"], DoubleGraph::kNone);
    const auto& values = g.value(logits).value;
    const auto last = values.end() - kSizes.vocabulary;
    return static_cast<int32_t>(std::max_element(last, values.end()) - last);
  }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
  Model model_;
};

// Also where the text has become longer than the context.
TEST_F(ContinueTest, GreedyTakesTheLikeliestToken) {
  const Tokens prompt = {3, 11};
  Tokens text = prompt;
  for (int i = 0; i < 20; ++i) {
    const size_t seen = std::min<size_t>(text.size(), 6);
    text.push_back(Likeliest({text.end() - static_cast<int64_t>(seen), text.end()}));
  }
  const Tokens expected(text.begin() + 2, text.end());
  // Otherwise the test would not see much.
  EXPECT_GT(std::set<int32_t>(expected.begin(), expected.end()).size(), 2u);
  EXPECT_EQ(Run(prompt, {.context = 6, .tokens = 20, .sampling = {.top_k = 1}}), expected);
  EXPECT_EQ(Run(prompt, {.context = 6, .tokens = 20, .sampling = {.temperature = 0}}), expected);
}

// Drawn as by a pass over the window for each token, within the context and beyond it.
TEST_F(ContinueTest, KeptKeysChangeNoToken) {
  Model llama = MakeLlama({.layers = 2,
                           .heads = 4,
                           .key_heads = 2,
                           .width = 16,
                           .mlp_width = 24,
                           .context = 20,
                           .vocabulary = 13});
  ASSERT_TRUE(AddAdapters(llama, {.layers = {"*.qkv"}, .rank = 2}).ok());
  Materialize(llama.Parameters(), /*seed=*/4, kernels_);
  Perturb(kernels_, llama.Parameters(), 0.4f);
  const ContinuationOptions options = {.context = 20, .tokens = 30, .sampling = {}, .seed = 5};
  Tokens text = {3, 11, 2}, kept;
  Continue(llama, kernels_, text, options, [&](int32_t token) { kept.push_back(token); });
  const Philox philox(PhiloxKey(options.seed, "generate", "token"));
  for (int64_t i = 0; i < options.tokens; ++i) {
    const Tokens window(text.end() - std::min<int64_t>(std::ssize(text), 20), text.end());
    Tape tape(kernels_, Tape::Recording::kOff);
    Pass pass = {.tape = tape, .mode = Pass::Mode::kEvaluate};
    const Tensor ids = Upload(kernels_, {1, std::ssize(window)}, window);
    const auto logits = Download(kernels_, RunBlocks(llama, pass, ids)[0].value);
    const std::vector<float> last(logits.value.end() - 13, logits.value.end());
    const auto words = philox.Block(static_cast<uint64_t>(i), 0);
    const uint64_t bits = static_cast<uint64_t>(words[0]) << 32 | words[1];
    text.push_back(SampleToken(last, options.sampling, static_cast<double>(bits >> 11) * 0x1p-53));
  }
  EXPECT_EQ(kept, Tokens(text.begin() + 3, text.end()));
}

TEST_F(ContinueTest, TheSeedDecides) {
  const ContinuationOptions options = {.context = 6, .tokens = 30, .sampling = {}, .seed = 1};
  ContinuationOptions other = options;
  other.seed = 2;
  const Tokens first = Run({3}, options);
  EXPECT_EQ(first.size(), 30u);
  EXPECT_EQ(Run({3}, options), first);
  EXPECT_NE(Run({3}, other), first);
  // A longer continuation begins with the shorter one.
  other = options;
  other.tokens = 10;
  EXPECT_EQ(Run({3}, other), Tokens(first.begin(), first.begin() + 10));
}

TEST_F(ContinueTest, EndsAtTheStop) {
  ContinuationOptions options = {.context = 6, .tokens = 30};
  const Tokens all = Run({3}, options);
  options.stop = all[7];
  const auto end = std::find(all.begin(), all.end(), all[7]);
  EXPECT_EQ(Run({3}, options), Tokens(all.begin(), end));
  options.tokens = 0;
  EXPECT_TRUE(Run({3}, options).empty());
}

TEST_F(ContinueTest, AModelThatHasDivergedIsRefused) {
  kernels_.Fill(model_.Parameters()[0]->value, std::numeric_limits<float>::quiet_NaN());
  try {
    Run({3, 11}, {.context = kSizes.context, .tokens = 1});
    FAIL() << "a token was drawn from NaN";
  } catch (const StatusException& error) {
    EXPECT_THAT(std::string(error.status().message()),
                ::testing::HasSubstr("logits are infinite or NaN"));
  }
}

}  // namespace
}  // namespace lockstep
