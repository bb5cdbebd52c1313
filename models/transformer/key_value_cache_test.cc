// Passes over further tokens against one pass over all of them.

#include "core/nn/key_value_cache.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/autograd/testing/arrays.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/nn/lora.h"
#include "gtest/gtest.h"
#include "models/testing/comparison.h"
#include "models/transformer/llama.h"
#include "models/transformer/transformer.h"

namespace lockstep {
namespace {

using reference::Array;

// More than a block of a product's inner dimension, and than tiles of queries.
constexpr int64_t kContext = 420;
constexpr int64_t kVocabulary = 13;

Model SmallGpt() {
  return MakeTransformer({.layers = 2,
                          .heads = 2,
                          .width = 16,
                          .context = kContext,
                          .vocabulary = kVocabulary,
                          .dropout = 0.3f});
}

// Three heads of queries to a head of keys.
Model SmallLlama() {
  return MakeLlama({.layers = 2,
                    .heads = 6,
                    .key_heads = 2,
                    .width = 48,
                    .mlp_width = 40,
                    .context = kContext,
                    .vocabulary = kVocabulary});
}

class KeyValueCacheTest : public ::testing::Test {
 protected:
  Array Logits(Model& model, Pass& pass, int64_t first) {
    const int64_t count = pass.tokens.time;
    const std::vector<int32_t> ids(ids_.begin() + first, ids_.begin() + first + count);
    return Download(kernels_, RunBlocks(model, pass, Upload(kernels_, {1, count}, ids))[0].value);
  }

  // Reads a text in passes of so many tokens, twice, and expects the logits of one pass over it.
  void ExpectTheBitsOfOnePass(Model model, const std::vector<int64_t>& passes) {
    Materialize(model.Parameters(), /*seed=*/4, kernels_);
    Perturb(kernels_, model.Parameters(), 0.3f);
    int64_t all = 0;
    for (const int64_t count : passes) all += count;
    Tape tape(kernels_, Tape::Recording::kOff);
    Pass whole = {
        .tape = tape, .mode = Pass::Mode::kEvaluate, .tokens = {.samples = 1, .time = all}};
    const Array expected = Logits(model, whole, 0);
    KeyValueCache cache(kernels_, kContext);
    for (int text = 0; text < 2; ++text) {
      Array logits(expected.shape);
      auto to = logits.value.begin();
      for (const int64_t count : passes) {
        const int64_t first = cache.tokens();
        Pass pass = cache.Begin(tape, count);
        const Array more = Logits(model, pass, first);
        to = std::copy(more.value.begin(), more.value.end(), to);
      }
      EXPECT_EQ(cache.tokens(), all);
      EXPECT_TRUE(SameBits(logits, expected)) << "text " << text;
      cache.Clear();
    }
  }

  int64_t Live() const { return allocator_.books().live(MemoryClass::kActivations); }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
  const std::vector<int32_t> ids_ = RandomIntegers(kContext, kVocabulary, 1);
};

// A prompt, then token after token over the borders of tiles.
std::vector<int64_t> TokenByToken(int64_t prompt, int64_t tokens) {
  std::vector<int64_t> passes = {prompt};
  passes.resize(static_cast<size_t>(tokens + 1), 1);
  return passes;
}

TEST_F(KeyValueCacheTest, HasTheBitsOfOnePass) {
  ExpectTheBitsOfOnePass(SmallGpt(), TokenByToken(45, 8));
  ExpectTheBitsOfOnePass(SmallLlama(), TokenByToken(45, 8));
  ExpectTheBitsOfOnePass(SmallLlama(), TokenByToken(381, 6));
}

TEST_F(KeyValueCacheTest, PassesMayHaveSeveralTokens) {
  ExpectTheBitsOfOnePass(SmallLlama(), {1, 60, 3, 120, 236});
}

TEST_F(KeyValueCacheTest, ModelsMayHaveAdapters) {
  for (Model (*make)() : {SmallGpt, SmallLlama}) {
    Model model = make();
    ASSERT_TRUE(AddAdapters(model, {.layers = {"*.qkv.v", "*.projection"}, .rank = 2}).ok());
    ExpectTheBitsOfOnePass(std::move(model), TokenByToken(5, 4));
  }
}

// What is kept of a token and layer: its heads of keys and of values.
TEST_F(KeyValueCacheTest, GroupsOfHeadsAreKeptOnce) {
  Model model = SmallLlama();
  Materialize(model.Parameters(), /*seed=*/4, kernels_);
  KeyValueCache cache(kernels_, kContext);
  Tape tape(kernels_, Tape::Recording::kOff);
  const int64_t before = Live();
  {
    Pass pass = cache.Begin(tape, 3);
    Logits(model, pass, 0);
  }
  const int64_t rotary_table = kContext * 8 * 4;
  EXPECT_EQ(Live() - before, 2 * kContext * 2 * (2 * 8) * 4 + rotary_table);
}

}  // namespace
}  // namespace lockstep
