// A GPT and a Llama of two layers forward and backward against the same networks written as plain
// loops in double precision, from the papers' formulas.

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/autograd/testing/arrays.h"
#include "core/base/philox.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/nn/loss.h"
#include "core/nn/positions.h"
#include "gtest/gtest.h"
#include "models/testing/comparison.h"
#include "models/testing/double_graph.h"
#include "models/transformer/llama.h"
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

// Groups of three heads, planes that Llama 3's scaling slows down, interpolates and leaves alone.
LlamaOptions SmallLlama(LlamaOptions::Head head) {
  return {.layers = 2,
          .heads = 6,
          .key_heads = 2,
          .width = 48,
          .mlp_width = 80,
          .context = 12,  // longer than the sequences
          .vocabulary = 37,
          .rotary = {.theta = 50,
                     .scaling = RotaryOptions::Scaling{.factor = 3,
                                                       .low_frequency_turns = 1,
                                                       .high_frequency_turns = 4,
                                                       .original_context = 40}},
          .head = head};
}

class LlamaReferenceTest : public testing::TestWithParam<LlamaOptions::Head> {
 protected:
  static constexpr int64_t kHeadWidth = 8;

  // Cosines and sines of the angles at each position of a sequence.
  static Array RotaryTable() {
    Array table(Shape{kTime, kHeadWidth});
    int slow = 0, between = 0;
    for (int64_t i = 0; i < kHeadWidth / 2; ++i) {
      double frequency = std::pow(50.0, -static_cast<double>(i) / (kHeadWidth / 2));
      const double turns = 40 * frequency / (2 * std::numbers::pi);
      if (turns < 1) {
        frequency /= 3;
        ++slow;
      } else if (turns < 4) {
        const double share = (turns - 1) / 3;
        frequency *= share + (1 - share) / 3;
        ++between;
      }
      for (int64_t t = 0; t < kTime; ++t) {
        table.value[t * kHeadWidth + i] = std::cos(static_cast<double>(t) * frequency);
        table.value[t * kHeadWidth + kHeadWidth / 2 + i] =
            std::sin(static_cast<double>(t) * frequency);
      }
    }
    EXPECT_TRUE(slow > 0 && between > 0 && slow + between < kHeadWidth / 2);
    return table;
  }

  // The most choices that an expert takes.
  static int64_t Capacity(const ExpertsOptions& experts) {
    if (experts.capacity_factor == 0) return kBatch * kTime;
    const double even = static_cast<double>(kBatch * kTime * experts.routing.chosen) /
                        static_cast<double>(experts.routing.experts);
    return static_cast<int64_t>(std::ceil(experts.capacity_factor * even));
  }

  Value Network(DoubleGraph& g, const DoubleParameters& p, const LlamaOptions& options) const {
    const auto layer = [&](const std::string& name, Value x) {
      return g.Linear(x, p[name + ".weight"], DoubleGraph::kNone);
    };
    const auto norm = [&](const std::string& name, Value x) {
      return g.RmsNorm(x, p[name + ".weight"], options.norm_epsilon);
    };
    std::vector<int32_t> positions;
    for (int32_t row = 0; row < kBatch * kTime; ++row) positions.push_back(row % kTime);
    const Array table = RotaryTable();
    Value x = g.Embedding(ids_, p["embedding.token.weight"], {kBatch, kTime, options.width});
    for (int64_t i = 0; i < options.layers; ++i) {
      const std::string attention = absl::StrCat("blocks.", i, ".attention");
      Value y = layer(attention + ".qkv", norm(attention + ".norm", x));
      y = g.Rotate({.heads = 6 + 2, .head_width = kHeadWidth}, y, positions, table);
      y = g.SelfAttention(
          {.heads = 6, .head_width = kHeadWidth, .dropout = {}, .total_heads = 6, .key_heads = 2},
          y);
      x = g.Add(x, layer(attention + ".projection", y));

      const std::string mlp = absl::StrCat("blocks.", i, ".network");
      const Value normed = norm(mlp + ".norm", x);
      if (!options.experts || options.shared_width > 0) {
        x = g.Add(x, layer(mlp + ".down", g.SwiGlu(layer(mlp + ".gate_up", normed))));
      }
      if (!options.experts) continue;
      // The mean loss of so many targets has the auxiliary loss as it is.
      const auto& experts = *options.experts;
      x = g.Add(x, g.Experts(experts.routing, normed, layer(mlp + ".router", normed),
                             p[mlp + ".experts.gate_up.weight"], p[mlp + ".experts.down.weight"],
                             Capacity(experts), experts.auxiliary_loss));
    }
    return layer("head.logits", norm("head.norm", x));
  }

  // Losses, gradients and logits, at the start and far from it.
  void ExpectReference(const LlamaOptions& options) {
    const std::vector<int32_t> targets = RandomIntegers(kBatch * kTime, 37, 2);
    for (const float perturbation : {0.0f, 0.3f}) {
      Model model = MakeLlama(options);
      Materialize(model.Parameters(), kSeed, kernels_);
      Materialize(model.Statistics(), kernels_);
      Perturb(kernels_, model.Parameters(), perturbation);
      DoubleGraph graph;
      const DoubleParameters parameters(graph, kernels_, model.Parameters());
      const Value logits = Network(graph, parameters, options);
      const double expected = graph.CrossEntropy(logits, targets, 1.0 / (kBatch * kTime));
      graph.Backward();
      const Tensor inputs = Upload(kernels_, {kBatch, kTime}, ids_);
      if (!options.experts || options.experts->capacity_factor == 0) {
        Tape tape(kernels_, Tape::Recording::kOff);
        Pass pass = {.tape = tape, .mode = Pass::Mode::kEvaluate};
        EXPECT_TRUE(IsNear(graph.value(logits),
                           Download(kernels_, RunBlocks(model, pass, inputs)[0].value),
                           kTolerance));
      }
      Tape tape(kernels_);
      Pass pass = {.tape = tape, .seed = kSeed, .loss_factor = 1.0f / (kBatch * kTime)};
      const double loss =
          TrainOnce(model, pass, inputs, Upload(kernels_, {kBatch, kTime}, targets));
      EXPECT_NEAR(loss, expected, 1e-6 * expected);
      parameters.ExpectGradients(kTolerance);
    }
  }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
  const std::vector<int32_t> ids_ = RandomIntegers(kBatch * kTime, 37, 1);
};

INSTANTIATE_TEST_SUITE_P(Heads, LlamaReferenceTest,
                         testing::Values(LlamaOptions::Head::kOwn, LlamaOptions::Head::kTied));

TEST_P(LlamaReferenceTest, TrainsAndEvaluates) { ExpectReference(SmallLlama(GetParam())); }

// Experts get more rows than others, or none; some choices are dropped, which evaluation does not
// do. The auxiliary loss is as large as the other.
TEST_P(LlamaReferenceTest, TrainsAndEvaluatesWithExperts) {
  LlamaOptions options = SmallLlama(GetParam());
  options.experts = ExpertsOptions{.routing = {.experts = 5, .chosen = 2}, .hidden = 24};
  ExpectReference(options);
  options.experts->auxiliary_loss = 3;
  ExpectReference(options);
  options.experts->routing = {
      .experts = 4, .chosen = 3, .scores = Routing::Scores::kSigmoid, .scaling = 2.5f};
  options.shared_width = 32;
  ExpectReference(options);
  options.experts->capacity_factor = 0.75;
  ExpectReference(options);
}

TEST(LlamaPositionsTest, MayBeGiven) {
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  Model model = MakeLlama(SmallLlama(LlamaOptions::Head::kOwn));
  Materialize(model.Parameters(), kSeed, kernels);
  Perturb(kernels, model.Parameters(), 0.3f);
  const Tensor inputs = Upload(kernels, {1, 4}, std::vector<int32_t>{3, 1, 4, 1});
  const auto logits = [&](const std::vector<int32_t>& positions) {
    Tape tape(kernels, Tape::Recording::kOff);
    Pass pass = {.tape = tape, .mode = Pass::Mode::kEvaluate};
    if (!positions.empty()) pass.positions = Upload(kernels, {4}, positions);
    return Download(kernels, RunBlocks(model, pass, inputs)[0].value);
  };
  const Array plain = logits({});
  EXPECT_TRUE(SameBits(plain, logits({0, 1, 2, 3})));
  // Attention depends on differences of positions alone.
  EXPECT_TRUE(IsNear(plain, logits({5, 6, 7, 8}), kTolerance));
  EXPECT_FALSE(IsNear(plain, logits({0, 2, 4, 6}), 100 * kTolerance));
}

// A sample that is packed from documents has the logits of each document alone.
TEST(PackedDocumentsTest, AreLikeSamplesOfTheirOwn) {
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  for (const bool is_llama : {true, false}) {
    Model model =
        is_llama ? MakeLlama(SmallLlama(LlamaOptions::Head::kOwn))
                 : MakeTransformer(
                       {.layers = 2, .heads = 2, .width = 16, .context = 12, .vocabulary = 37});
    Materialize(model.Parameters(), kSeed, kernels);
    Perturb(kernels, model.Parameters(), 0.3f);
    const TokenOrder tokens = {.samples = 1, .time = 12};
    const std::vector<int32_t> ids = RandomIntegers(12, 37, 1);
    const std::vector<std::pair<int64_t, int64_t>> documents = {{0, 5}, {5, 1}, {6, 6}};
    std::vector<int32_t> first;
    for (const auto& [begin, count] : documents) {
      first.insert(first.end(), static_cast<size_t>(count), static_cast<int32_t>(begin));
    }
    Tape tape(kernels, Tape::Recording::kOff);
    const Tensor starts = Upload(kernels, {1, 12}, first);
    Pass packed = {.tape = tape,
                   .mode = Pass::Mode::kEvaluate,
                   .tokens = tokens,
                   .positions = PositionsInDocuments(kernels, tokens, starts),
                   .documents = starts};
    const Array all =
        Download(kernels, RunBlocks(model, packed, Upload(kernels, {1, 12}, ids))[0].value);
    for (const auto& [begin, count] : documents) {
      Pass alone = {.tape = tape, .mode = Pass::Mode::kEvaluate};
      const std::vector<int32_t> own(ids.begin() + begin, ids.begin() + begin + count);
      const Array expected =
          Download(kernels, RunBlocks(model, alone, Upload(kernels, {1, count}, own))[0].value);
      Array part(expected.shape);
      std::copy_n(all.value.begin() + begin * 37, count * 37, part.value.begin());
      EXPECT_TRUE(IsNear(expected, part, kTolerance)) << is_llama << " " << begin;
    }
  }
}

// Tokens lie in another order, and have the same logits as in the order of positions.
TEST(LlamaPositionsTest, FollowTokenLeaves) {
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  Model model = MakeLlama(SmallLlama(LlamaOptions::Head::kOwn));
  Materialize(model.Parameters(), kSeed, kernels);
  Perturb(kernels, model.Parameters(), 0.3f);
  const TokenOrder order = {.samples = 2, .time = 12, .leaves = 3};
  const std::vector<int32_t> ids = RandomIntegers(order.rows(), 37, 1);
  std::vector<int32_t> by_leaf;
  std::vector<int64_t> rows;  // in the order of positions, of each row by leaves
  for (int64_t row = 0; row < order.rows(); ++row) {
    const int64_t leaf = row / order.leaf_rows(), sample = row % order.leaf_rows() / 4;
    rows.push_back(sample * 12 + order.PositionOf(leaf, row % 4));
    by_leaf.push_back(ids[rows.back()]);
  }
  const auto logits = [&](const TokenOrder& tokens, const std::vector<int32_t>& input) {
    Tape tape(kernels, Tape::Recording::kOff);
    Pass pass = {.tape = tape, .mode = Pass::Mode::kEvaluate, .tokens = tokens};
    const Shape shape = {tokens.leaves * tokens.samples, tokens.leaf_time()};
    return Download(kernels, RunBlocks(model, pass, Upload(kernels, shape, input))[0].value);
  };
  const Array plain = logits({.samples = 2, .time = 12}, ids), cut = logits(order, by_leaf);
  Array moved(plain.shape);
  for (int64_t i = 0; i < cut.elements(); ++i) moved.value[rows[i / 37] * 37 + i % 37] = cut[i];
  EXPECT_TRUE(IsNear(plain, moved, kTolerance));
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
