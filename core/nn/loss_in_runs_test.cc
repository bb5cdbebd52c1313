// The loss in runs of rows against the loss over whole logits: losses, gradients and the count of
// right guesses, to the bit.

#include "core/nn/loss_in_runs.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/testing/arrays.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/nn/layers.h"
#include "core/nn/loss.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using reference::Array;

constexpr int64_t kWidth = 24;

struct Case {
  std::string name;
  int64_t rows = 0;
  int64_t leaf_rows = 0;  // of a token leaf; 0: not cut
  int64_t vocabulary = 30;
  int features = 1;
  DType gradient = DType::kF32;
  Tape::Extent extent = Tape::Extent::kAll;
  int micro_batches = 1;
};

// What one step leaves.
struct Outcome {
  std::vector<Array> losses, dx;
  std::vector<Array> gradients;  // of the token leaves
  int64_t correct = 0;
};

class LossInRunsTest : public ::testing::TestWithParam<Case> {
 protected:
  // `rows_of_run`: 0: whole logits.
  Outcome Step(int64_t rows_of_run) {
    const Case& c = GetParam();
    LogitsLayer layer("logits", c.vocabulary, kWidth, Init::Normal(0.5f));
    if (c.features > 1) layer.CutFeatures(SplitStyle::kVocabulary, c.features);
    Materialize(layer.Parameters(), /*seed=*/3, kernels_);
    Parameter& weight = *layer.Parameters()[0];
    weight.gradient_dtype = c.gradient;
    const int64_t leaves = c.leaf_rows == 0 ? 1 : c.rows / c.leaf_rows;
    weight.gradient = kernels_.Empty(weight.held_shape(), c.gradient);
    Outcome outcome;
    for (int i = 0; i < c.micro_batches; ++i) {
      if (leaves == 1 || i == 0) Run(layer, i, rows_of_run, outcome);
    }
    outcome.gradients.push_back(Download(kernels_, AsFloats(weight.gradient)));
    return outcome;
  }

  void Run(LogitsLayer& layer, int micro_batch, int64_t rows_of_run, Outcome& outcome) {
    const Case& c = GetParam();
    constexpr float kFactor = 0.01f;
    std::vector<int32_t> ids =
        RandomIntegers(c.rows, static_cast<int32_t>(c.vocabulary), 5 + micro_batch);
    for (size_t i = 0; i < ids.size(); i += 7) ids[i] = -1;     // ignored
    const Tensor targets = Upload(kernels_, {1, c.rows}, ids);  // as batches have them
    Tape tape(kernels_, Tape::Recording::kOn, c.leaf_rows);
    LossInRuns in_runs = {
        .rows = rows_of_run, .targets = targets, .factor = kFactor, .correct = &outcome.correct};
    Pass pass = {.tape = tape, .loss_in_runs = rows_of_run > 0 ? &in_runs : nullptr};
    const Tensor x = Upload(kernels_, RandomArray({c.rows, kWidth}, 9 + micro_batch));
    const Variable input(x, std::make_shared<GradientSlot>());
    Variable out = layer(pass, input);
    if (rows_of_run == 0) outcome.correct += CountCorrect(pass, out.value, targets);
    const CrossEntropy result = rows_of_run > 0
                                    ? StartFromLosses(pass, out)
                                    : SoftmaxCrossEntropy(pass, std::move(out), targets, kFactor);
    outcome.losses.push_back(Download(kernels_, result.losses));
    tape.Backward({}, c.extent);
    if (c.extent == Tape::Extent::kInputsOnly) tape.RunDeferred();
    outcome.dx.push_back(Download(kernels_, input.gradient->Take()));
  }

  Tensor AsFloats(const Tensor& x) {
    const Tensor y = kernels_.Empty(x.shape());
    kernels_.Cast(x, y);
    return y;
  }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
};

// 1,000 rows are eight row leaves, the last of 104 rows: 8, 4, 2 and 1 runs. A run of 256 rows ends
// in the middle of a token leaf of 384.
TEST_P(LossInRunsTest, HasTheBitsOfWholeLogits) {
  const Outcome whole = Step(0);
  EXPECT_GT(whole.correct, 0);
  for (const int64_t rows : {128, 256, 512, 1024}) {
    SCOPED_TRACE(rows);
    const Outcome in_runs = Step(rows);
    EXPECT_EQ(in_runs.correct, whole.correct);
    for (size_t i = 0; i < whole.losses.size(); ++i) {
      EXPECT_TRUE(SameBits(in_runs.losses[i], whole.losses[i]));
      EXPECT_TRUE(SameBits(in_runs.dx[i], whole.dx[i]));
    }
    EXPECT_TRUE(SameBits(in_runs.gradients[0], whole.gradients[0]));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, LossInRunsTest,
    ::testing::Values(
        Case{.name = "Plain", .rows = 1000},
        Case{.name = "AddsToAGradient", .rows = 1000, .micro_batches = 3},
        Case{
            .name = "GradientIn16Bits", .rows = 1000, .gradient = DType::kBF16, .micro_batches = 2},
        Case{.name = "TokenLeaves", .rows = 1152, .leaf_rows = 384},
        Case{.name = "UnalignedTokenLeaves", .rows = 603, .leaf_rows = 201},
        Case{.name = "FeatureLeavesAndPadding", .rows = 1000, .vocabulary = 300, .features = 4},
        Case{.name = "HalvedBackward", .rows = 1000, .extent = Tape::Extent::kInputsOnly}),
    [](const auto& test) { return test.param.name; });

// Memory: no tensor has a row for each row of the pass and a column for each class.
TEST(LossInRunsMemoryTest, HoldsTheLogitsOfOneRun) {
  constexpr int64_t kRows = 1024, kVocabulary = 4096;
  const auto peak = [](int64_t rows_of_run) {
    CpuAllocator allocator;
    CpuKernels kernels(allocator);
    LogitsLayer layer("logits", kVocabulary, kWidth, Init::Normal(0.5f));
    Materialize(layer.Parameters(), /*seed=*/3, kernels);
    layer.Parameters()[0]->gradient =
        kernels.Empty({kVocabulary, kWidth}, DType::kF32, MemoryClass::kGradients);
    const Tensor targets = Upload(kernels, {kRows}, RandomIntegers(kRows, kVocabulary, 1));
    const Variable x(Upload(kernels, RandomArray({kRows, kWidth}, 2)),
                     std::make_shared<GradientSlot>());
    allocator.ResetPeaks();
    Tape tape(kernels);
    const LossInRuns in_runs = {.rows = rows_of_run, .targets = targets};
    Pass pass = {.tape = tape, .loss_in_runs = rows_of_run > 0 ? &in_runs : nullptr};
    Variable out = layer(pass, x);
    if (rows_of_run > 0) {
      StartFromLosses(pass, out);
    } else {
      SoftmaxCrossEntropy(pass, std::move(out), targets, 1);
    }
    tape.Backward();
    return allocator.books().peak(MemoryClass::kActivations);
  };
  const int64_t logits = kRows * kVocabulary * 4;
  // Beside logits: inputs and gradients of the layer, losses and targets.
  const int64_t beside = 2 * kRows * kWidth * 4 + 4 * kRows * 4;
  EXPECT_GE(peak(0), logits);
  EXPECT_LE(peak(128), logits / 8 + beside);
}

}  // namespace
}  // namespace lockstep
