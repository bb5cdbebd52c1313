// A GPT of two layers forward and backward against the same network written as plain loops in
// double precision, from the papers' formulas.

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/autograd/testing/arrays.h"
#include "core/base/philox.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/nn/loss.h"
#include "gtest/gtest.h"
#include "models/testing/comparison.h"
#include "models/testing/double_graph.h"
#include "models/transformer/transformer.h"

namespace lockstep {
namespace {

using reference::Array;
using Value = DoubleGraph::Value;

constexpr double kEpsilon = 1e-5f;

// Relative to the largest gradient of a tensor. Two layers of some ten operations each, every one
// with sums of up to 192 terms: rounding errors of 6e-8 grow to 4e-6; the rest is margin.
constexpr double kTolerance = 2e-5;

constexpr int64_t kBatch = 3, kTime = 10;
constexpr uint64_t kSeed = 5;
constexpr int64_t kStep = 6, kMicroBatch = 7;

TransformerOptions Options(float dropout) {
  return {.layers = 2,
          .heads = 3,
          .width = 48,
          .context = 12,  // longer than the sequences
          .vocabulary = 37,
          .dropout = dropout};
}

class TransformerReferenceTest : public testing::TestWithParam<float> {
 protected:
  TransformerReferenceTest() {
    ids_ = RandomIntegers(kBatch * kTime, 37, 1);
    targets_ = RandomIntegers(kBatch * kTime, 37, 2);
    targets_[4] = targets_[17] = -1;
  }

  // The mask of one place: its layer's name, step and micro-batch, by element.
  Dropout DropoutOf(const std::string& layer, const TransformerOptions& options) const {
    if (mode_ == Pass::Mode::kEvaluate) return {};
    return {.probability = options.dropout,
            .key = PhiloxKey(kSeed, "dropout", layer),
            .counter = (static_cast<uint64_t>(kStep) << 32) + kMicroBatch};
  }

  Value Layer(DoubleGraph& g, const DoubleParameters& p, const std::string& name, Value x) const {
    return g.Linear(x, p[name + ".weight"], p[name + ".bias"]);
  }
  Value Norm(DoubleGraph& g, const DoubleParameters& p, const std::string& name, Value x) const {
    return g.LayerNorm(x, p[name + ".weight"], p[name + ".bias"], kEpsilon);
  }

  Value Network(DoubleGraph& g, const DoubleParameters& p,
                const TransformerOptions& options) const {
    Value x = g.Embedding(ids_, p["embedding.token.weight"], {kBatch, kTime, options.width});
    x = g.AddPositions(x, p["embedding.position.weight"]);
    x = g.Dropout(DropoutOf("embedding", options), x);
    for (int64_t i = 0; i < options.layers; ++i) {
      const std::string attention = absl::StrCat("blocks.", i, ".attention");
      Value y = Layer(g, p, attention + ".qkv", Norm(g, p, attention + ".norm", x));
      y = g.SelfAttention({.heads = options.heads,
                           .head_width = options.width / options.heads,
                           .dropout = DropoutOf(attention + ".probabilities", options),
                           .total_heads = options.heads},
                          y);
      y = Layer(g, p, attention + ".projection", y);
      x = g.Add(x, g.Dropout(DropoutOf(attention, options), y));

      const std::string mlp = absl::StrCat("blocks.", i, ".network");
      y = Layer(g, p, mlp + ".up", Norm(g, p, mlp + ".norm", x));
      y = Layer(g, p, mlp + ".down", g.Gelu(y));
      x = g.Add(x, g.Dropout(DropoutOf(mlp, options), y));
    }
    return g.Linear(Norm(g, p, "head.norm", x), p["head.logits.weight"], DoubleGraph::kNone);
  }

  Model Start(const TransformerOptions& options, float perturbation) {
    Model model = MakeTransformer(options);
    Materialize(model.Parameters(), kSeed, kernels_);
    Perturb(kernels_, model.Parameters(), perturbation);
    return model;
  }

  void ExpectTraining(const TransformerOptions& options, float perturbation) {
    Model model = Start(options, perturbation);
    DoubleGraph graph;
    const DoubleParameters parameters(graph, kernels_, model.Parameters());
    const Value logits = Network(graph, parameters, options);
    const double expected = graph.CrossEntropy(logits, targets_, 1.0 / (kBatch * kTime));
    graph.Backward();

    Tape tape(kernels_);
    Pass pass = {.tape = tape, .seed = kSeed, .step = kStep, .micro_batch = kMicroBatch};
    const double loss = TrainOnce(model, pass, Upload(kernels_, {kBatch, kTime}, ids_),
                                  Upload(kernels_, {kBatch, kTime}, targets_));
    EXPECT_NEAR(loss, expected, 1e-6 * expected);
    parameters.ExpectGradients(kTolerance);
  }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
  std::vector<int32_t> ids_, targets_;
  Pass::Mode mode_ = Pass::Mode::kTrain;
};

// With and without dropout the network takes different fused paths.
INSTANTIATE_TEST_SUITE_P(Dropout, TransformerReferenceTest, testing::Values(0.0f, 0.2f));

TEST_P(TransformerReferenceTest, AsItStarts) { ExpectTraining(Options(GetParam()), 0); }

// Far from the start attention is far from even, and no bias is zero.
TEST_P(TransformerReferenceTest, WithLargeWeights) { ExpectTraining(Options(GetParam()), 0.3f); }

TEST_P(TransformerReferenceTest, EvaluationDropsNothing) {
  const TransformerOptions options = Options(GetParam());
  Model model = Start(options, 0.3f);
  mode_ = Pass::Mode::kEvaluate;
  DoubleGraph graph;
  const DoubleParameters parameters(graph, kernels_, model.Parameters());
  const Value logits = Network(graph, parameters, options);
  Tape tape(kernels_, Tape::Recording::kOff);
  Pass pass = {.tape = tape, .mode = Pass::Mode::kEvaluate, .seed = kSeed};
  const Variables outputs = RunBlocks(model, pass, Upload(kernels_, {kBatch, kTime}, ids_));
  EXPECT_TRUE(IsNear(graph.value(logits), Download(kernels_, outputs[0].value), kTolerance));
}

// A vocabulary of 67 is padded to 128 in memory: losses, gradients and the count of correct guesses
// are those of the bare table, here where every logit of a word lies below the padding's 0.
TEST(PaddedVocabularyTest, ChangesNoBit) {
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  TransformerOptions options = Options(0);
  options.vocabulary = 67;
  const std::vector<int32_t> ids = RandomIntegers(kBatch * kTime, 67, 1);
  std::vector<Array> gradients[2];
  double losses[2];
  int64_t correct[2];
  for (const bool padded : {false, true}) {
    Model model = MakeTransformer(options);
    if (padded) model.CutFeatures(1);
    Parameter& table = *model.Parameters().front();
    ASSERT_EQ(table.held_shape()[0], padded ? 128 : 67);
    Materialize(model.Parameters(), kSeed, kernels);
    // The last normalisation gives minus the first words' sum, far from 0.
    for (float& value : table.value.span<float>()) value = std::abs(value);
    for (Parameter* parameter : model.Parameters()) {
      if (parameter->name == "head.norm.weight") kernels.Fill(parameter->value, 0.1f);
      if (parameter->name == "head.norm.bias") kernels.Fill(parameter->value, -1);
    }
    const Tensor inputs = Upload(kernels, {kBatch, kTime}, ids);
    {
      Tape tape(kernels, Tape::Recording::kOff);
      Pass pass = {.tape = tape, .mode = Pass::Mode::kEvaluate};
      const Tensor logits = RunBlocks(model, pass, inputs)[0].value;
      for (int64_t row = 0; row < kBatch * kTime; ++row) {
        for (int64_t c = 0; c < 67; ++c) {
          ASSERT_LT(logits.data<float>()[row * logits.shape()[-1] + c], 0);
        }
      }
      correct[padded] = CountCorrect(pass, logits, inputs);
    }
    Tape tape(kernels);
    Pass pass = {.tape = tape, .seed = kSeed};
    losses[padded] = TrainOnce(model, pass, inputs, inputs);
    for (Parameter* parameter : model.Parameters()) {
      gradients[padded].push_back(
          Download(kernels, parameter->gradient.View(0, parameter->slice_shape())));
    }
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_GT(correct[0], 0);
  EXPECT_EQ(correct[0], correct[1]);
  for (size_t i = 0; i < gradients[0].size(); ++i) {
    EXPECT_TRUE(SameBits(gradients[0][i], gradients[1][i])) << i;
  }
}

}  // namespace
}  // namespace lockstep
