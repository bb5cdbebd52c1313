// Adapters of experts: what W + scale B A would get as a plain layer's weight is what A and B get,
// whether an expert's hidden features are one leaf or two.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/testing/arrays.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/nn/experts.h"
#include "core/nn/lora.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using reference::Array;
using ::testing::ElementsAre;

constexpr double kTolerance = 1e-5;  // relative to the largest element
constexpr float kScale = 1.5f;
constexpr int64_t kExperts = 3, kWidth = 5, kHidden = 4, kRank = 2, kTokens = 11;

class TestBlock : public Block {
 public:
  TestBlock()
      : Block("b"),
        experts(AddChild<ExpertsLayer>("experts", kWidth, Options(), Init::Normal(0.5f),
                                       Init::Normal(0.5f))) {}
  static ExpertsOptions Options() {
    return {.routing = {.experts = kExperts, .chosen = 2}, .hidden = kHidden};
  }
  Variables Forward(Pass& /*pass*/, Variables inputs) override { return inputs; }

  ExpertsLayer& experts;
};

class ExpertAdaptersTest : public ::testing::Test {
 protected:
  // What the layer makes of x, and what a gradient of its output leaves in x.
  struct Passed {
    Array y, dx;
  };

  // A model with adapters whose B are not zeros any more, with so many leaves of hidden features.
  void Make(int features) {
    model_.blocks.clear();
    auto block = std::make_unique<TestBlock>();
    block_ = block.get();
    model_.blocks.push_back(std::move(block));
    ASSERT_TRUE(AddAdapters(model_, {.layers = {"*.experts"}, .rank = kRank, .alpha = 3}).ok());
    for (Module* module : block_->Modules()) module->CutFeatures(SplitStyle::kColumn, features);
    Materialize(model_.Parameters(), 1, kernels_);
    uint64_t stream = 100;
    for (Parameter* parameter : model_.Parameters()) {
      if (!parameter->name.ends_with("lora_B")) continue;
      kernels_.Copy(Upload(kernels_, RandomArray(parameter->shape, ++stream)), parameter->value);
    }
    for (Parameter* parameter : model_.Parameters()) {
      if (parameter->feature_leaves == 1) continue;
      parameter->MakeAccumulators(kernels_, parameter->feature_leaves);
    }
  }

  Passed Run() {
    Tape tape(kernels_);
    Pass pass{.tape = tape};
    const Variable in = tape.Result(Upload(kernels_, RandomArray({kTokens, kWidth}, 7)), true);
    const Variable logits(Upload(kernels_, RandomArray({kTokens, kExperts}, 8)));
    const RoutedRows routed = Route(tape, logits, {.routing = TestBlock::Options().routing});
    const Variable residual(Upload(kernels_, RandomArray({kTokens, kWidth}, 10)));
    const Variable out = block_->experts(pass, in, routed, residual);
    Passed passed = {.y = Download(kernels_, out.value), .dx = {}};
    tape.Backward({{out, Upload(kernels_, RandomArray({kTokens, kWidth}, 9))}});
    passed.dx = Download(kernels_, in.gradient->Take());
    for (Parameter* parameter : model_.Parameters()) {
      if (!parameter->has_accumulators()) continue;
      parameter->SumAccumulators(kernels_, 0, parameter->accumulators(), 1);
    }
    return passed;
  }

  Parameter& Named(const std::string& name) {
    for (Parameter* parameter : model_.Parameters()) {
      if (parameter->name == "b.experts." + name) return *parameter;
    }
    ADD_FAILURE() << name;
    return *model_.Parameters()[0];
  }
  Array Gradient(const std::string& name) { return Download(kernels_, Named(name).gradient); }
  Array Value(const std::string& name) { return Download(kernels_, Named(name).value); }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
  Model model_;
  TestBlock* block_ = nullptr;
};

// sum[row, column] += kScale * sum over k of a(row, k) b(k, column), of one expert.
template <typename A, typename B>
void AddProductTo(Array& sum, int64_t first_row, int64_t rows, int64_t columns, int64_t inner,
                  const A& a, const B& b) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      double dot = 0;
      for (int64_t k = 0; k < inner; ++k) dot += a(row, k) * b(k, column);
      sum.value[(first_row + row) * columns + column] += kScale * dot;
    }
  }
}

TEST_F(ExpertAdaptersTest, EachExpertHasAPairOfFactors) {
  Make(/*features=*/1);
  std::vector<std::string> names;
  for (const Parameter* parameter : model_.Parameters()) {
    EXPECT_TRUE(parameter->is_of_experts) << parameter->name;
    if (parameter->trainable) names.push_back(parameter->name);
  }
  EXPECT_THAT(names, ElementsAre("b.experts.gate_up.lora_A", "b.experts.gate_up.lora_B",
                                 "b.experts.down.lora_A", "b.experts.down.lora_B"));
  EXPECT_EQ(Named("gate_up.lora_A").shape, (Shape{kExperts * kRank, kWidth}));
  EXPECT_EQ(Named("gate_up.lora_B").shape, (Shape{kExperts * 2 * kHidden, kRank}));
  EXPECT_EQ(Named("down.lora_A").shape, (Shape{kExperts * kHidden, kRank}));
  EXPECT_EQ(Named("down.lora_B").shape, (Shape{kExperts * kWidth, kRank}));
}

TEST_F(ExpertAdaptersTest, OutputsAndGradientsAreThoseOfTheProductInTheWeight) {
  for (const int features : {1, 2}) {
    SCOPED_TRACE(features);
    Make(features);
    EXPECT_EQ(Named("gate_up.lora_A").feature_leaves, features);
    EXPECT_EQ(Named("down.lora_B").feature_leaves, features);
    EXPECT_EQ(Named("down.lora_A").feature_leaves, 1);
    const Passed adapted = Run();
    const Array a1 = Value("gate_up.lora_A"), b1 = Value("gate_up.lora_B"),
                a2 = Value("down.lora_A"), b2 = Value("down.lora_B");
    const Array of_a1 = Gradient("gate_up.lora_A"), of_b1 = Gradient("gate_up.lora_B"),
                of_a2 = Gradient("down.lora_A"), of_b2 = Gradient("down.lora_B");
    const MergedAdapters merged(model_, kernels_);
    for (const char* weight : {"gate_up.weight", "down.weight"}) Named(weight).trainable = true;
    const Passed plain = Run();
    EXPECT_TRUE(IsNear(plain.y, adapted.y, kTolerance));
    EXPECT_TRUE(IsNear(plain.dx, adapted.dx, kTolerance));

    const Array up = Gradient("gate_up.weight"), down = Gradient("down.weight");
    Array da1(a1.shape), db1(b1.shape), da2(a2.shape), db2(b2.shape);
    constexpr int64_t kOutputs = 2 * kHidden;
    for (int64_t e = 0; e < kExperts; ++e) {
      const auto d_up = [&](int64_t o, int64_t i) {
        return up.value[(e * kOutputs + o) * kWidth + i];
      };
      const auto d_down = [&](int64_t h, int64_t o) {
        return down.value[(e * kHidden + h) * kWidth + o];
      };
      AddProductTo(
          da1, e * kRank, kRank, kWidth, kOutputs,
          [&](int64_t r, int64_t o) { return b1.value[(e * kOutputs + o) * kRank + r]; }, d_up);
      AddProductTo(db1, e * kOutputs, kOutputs, kRank, kWidth, d_up,
                   [&](int64_t i, int64_t r) { return a1.value[(e * kRank + r) * kWidth + i]; });
      AddProductTo(da2, e * kHidden, kHidden, kRank, kWidth, d_down,
                   [&](int64_t o, int64_t r) { return b2.value[(e * kWidth + o) * kRank + r]; });
      AddProductTo(
          db2, e * kWidth, kWidth, kRank, kHidden,
          [&](int64_t o, int64_t h) { return d_down(h, o); },
          [&](int64_t h, int64_t r) { return a2.value[(e * kHidden + h) * kRank + r]; });
    }
    EXPECT_TRUE(IsNear(da1, of_a1, kTolerance));
    EXPECT_TRUE(IsNear(db1, of_b1, kTolerance));
    EXPECT_TRUE(IsNear(da2, of_a2, kTolerance));
    EXPECT_TRUE(IsNear(db2, of_b2, kTolerance));
  }
}

TEST_F(ExpertAdaptersTest, TheBaseComesBackFromAMerge) {
  Make(/*features=*/1);
  const Array weight = Value("down.weight"), unmerged = Run().y;
  MergedAdapters merged(model_, kernels_);
  EXPECT_FALSE(SameBits(weight, Value("down.weight")));
  EXPECT_TRUE(IsNear(unmerged, Run().y, kTolerance));
  merged.Unmerge();
  EXPECT_TRUE(SameBits(weight, Value("down.weight")));
  EXPECT_TRUE(SameBits(unmerged, Run().y));
}

TEST_F(ExpertAdaptersTest, DropoutIsRefused) {
  Make(/*features=*/1);
  Model model;
  model.blocks.push_back(std::make_unique<TestBlock>());
  const absl::Status status =
      AddAdapters(model, {.layers = {"b"}, .rank = kRank, .alpha = 3, .dropout = 0.25});
  EXPECT_EQ(std::string(status.message()),
            "adapters of experts have no dropout, and there would be one in layer "
            "'b.experts.gate_up' with lora.dropout=0.25; set lora.dropout=0, or name other layers");
  EXPECT_FALSE(HasAdapters(model));
}

}  // namespace
}  // namespace lockstep
