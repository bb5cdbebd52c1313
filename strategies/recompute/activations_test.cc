// The activations that recomputation saves, against formulas made from the sizes of the models.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/ddp/ddp.h"
#include "strategies/gpipe/gpipe.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

// Tokens of a sample, samples of a micro-batch, width, heads and layers: so that all tensors fill
// 64-byte units.
constexpr int64_t s = 16, b = 4, h = 32, a = 2, kLayers = 3;
constexpr int64_t kFp32 = 4;

// Elements that our kernels keep of one layer of a GPT for a micro-batch:
//   layer norms     inputs [b, s, h] and two numbers a row [b s], twice each
//   projections     their inputs [b, s, h]: QKV's, the output projection's
//   attention       QKV [b, s, 3 h], its output, which is the projection's input, and the log of
//   the
//                   sum of each row [b, a, s]; probabilities [b, a, s, s] are never stored
//   MLP             its input [b, s, h] and what goes into GELU [b, s, 4 h]
// The input of the first norm is the layer's own, and that of the second has the residual added;
// dropout masks are drawn again, and not stored.
constexpr int64_t kLayerInput = b * s * h;
constexpr int64_t kRowsOfNorm = 2 * b * s;
constexpr int64_t kLogSumExp = b * a * s;
constexpr int64_t kBeforeGelu = b * s * 4 * h;
constexpr int64_t kLayer = 2 * kLayerInput + 2 * kRowsOfNorm  // norms
                           + 2 * b * s * h                    // inputs of both projections
                           + b * s * 3 * h + kLogSumExp       // attention
                           + b * s * h + kBeforeGelu;         // MLP
// The head's norm, whose input is the last layer's output, and the input of the logits.
constexpr int64_t kHead = kLayerInput + kRowsOfNorm + b * s * h;

Assignments Gpt(int64_t micro_batches) {
  return {absl::StrCat("data.context=", s),
          absl::StrCat("model.width=", h),
          absl::StrCat("model.heads=", a),
          absl::StrCat("model.layers=", kLayers),
          absl::StrCat("batch.size=", b * micro_batches),
          absl::StrCat("cut.micro_batches=", micro_batches),
          absl::StrCat("validation.batch_size=", 1),
          "mesh.dp=1",
          "train.steps=1"};
}

// Live bytes of activations of training each time that forward has left the block.
struct Watched {
  std::string block;
  std::vector<int64_t> bytes = {};
};

ModelFactory Watching(Watched& watched) {
  return [&watched](const Config& config, const Dataset& dataset) -> absl::StatusOr<Model> {
    absl::StatusOr<Model> model = MakeModel(config, dataset);
    for (const auto& block : model->blocks) {
      if (block->name() != watched.block) continue;
      const auto look = [&watched](Pass& pass) {
        if (!pass.training()) return;
        watched.bytes.push_back(pass.kernels().allocator().books().live(MemoryClass::kActivations));
      };
      block->AddHooks({.after_forward = look});
    }
    return model;
  };
}

// What a policy keeps less, each time that forward has left `block`.
std::vector<int64_t> Saved(const StrategyDefinition& strategy, const std::string& config,
                           const Assignments& assignments, const Assignments& policy,
                           const std::string& block) {
  Watched kept = {block}, recomputed = {block};
  // A rehearsal: messages are over when they begin, so nothing depends on time.
  const auto all = RehearseStrategy(strategy, Watching(kept), config, assignments);
  const auto less =
      RehearseStrategy(strategy, Watching(recomputed), config, With(assignments, policy));
  EXPECT_EQ(kept.bytes.size(), recomputed.bytes.size());
  std::vector<int64_t> saved;
  for (size_t i = 0; i < kept.bytes.size() && i < recomputed.bytes.size(); ++i) {
    saved.push_back(kept.bytes[i] - recomputed.bytes[i]);
  }
  return saved;
}

const Assignments kFull = {"recompute.granularity=full"};
const Assignments kSelective = {"recompute.granularity=selective"};
const Assignments kMlp = {"recompute.operations=[\"mlp\"]"};
const Assignments kBoth = {"recompute.operations=[\"attention\", \"mlp\"]"};

struct Expected {
  Assignments policy;
  int64_t elements;  // of a layer
};
const std::vector<Expected>& OfALayer() {
  static const std::vector<Expected> expected = {{kFull, kLayer - kLayerInput},
                                                 {kSelective, kLogSumExp},
                                                 {kMlp, kBeforeGelu},
                                                 {kBoth, kLogSumExp + kBeforeGelu}};
  return expected;
}

TEST(ActivationsTest, OfALayerAreElevenInputsAndItsRows) {
  EXPECT_EQ(kLayer, 12 * b * s * h + 4 * b * s + a * b * s);
}

TEST(ActivationsTest, DdpKeepsWhatTheFormulaSays) {
  for (const char* dropout : {"model.dropout=0", "model.dropout=0.1"}) {
    const Assignments gpt = With(Gpt(1), {dropout});
    for (const auto& [policy, elements] : OfALayer()) {
      SCOPED_TRACE(absl::StrCat(dropout, " ", policy[0]));
      EXPECT_EQ(
          Saved(DdpStrategy(), SmallGptConfig(), gpt, policy, absl::StrCat("blocks.", kLayers - 1)),
          std::vector<int64_t>({kFp32 * kLayers * elements}));
    }
    // With the head, whose logits are there in either case.
    EXPECT_EQ(
        Saved(DdpStrategy(), SmallGptConfig(), gpt, kFull, "head"),
        std::vector<int64_t>({kFp32 * (kLayers * (kLayer - kLayerInput) + kHead - kLayerInput)}));
  }
}

// As of a GPT; RMS normalisation keeps one number a row, QKV has a heads of queries and two of keys
// and of values, and m numbers a token are gated by as many. Rotation keeps nothing: it turns what
// attention keeps where that lies. Positions belong to the pass.
TEST(ActivationsTest, OfALlama) {
  constexpr int64_t m = 48, kKeyHeads = 2, kHeads = 4;
  constexpr int64_t kSums = b * kHeads * s, kGates = b * s * 2 * m;
  constexpr int64_t kOfLayer = 2 * kLayerInput + 2 * b * s                         // norms
                               + 2 * b * s * h                                     // projections
                               + b * s * (h + 2 * h / kHeads * kKeyHeads) + kSums  // attention
                               + b * s * h + kGates;                               // MLP
  const Assignments llama = {absl::StrCat("model.mlp_width=", m),
                             absl::StrCat("model.key_heads=", kKeyHeads)};
  Assignments all = With(Gpt(1), llama);
  all.push_back(absl::StrCat("model.heads=", kHeads));
  for (const auto& [policy, elements] : std::vector<Expected>{{kFull, kOfLayer - kLayerInput},
                                                              {kSelective, kSums},
                                                              {kMlp, kGates},
                                                              {kBoth, kSums + kGates}}) {
    SCOPED_TRACE(policy[0]);
    EXPECT_EQ(
        Saved(DdpStrategy(), SmallLlamaConfig(), all, policy, absl::StrCat("blocks.", kLayers - 1)),
        std::vector<int64_t>({kFp32 * kLayers * elements}));
  }
}

// The first stage has the embedding and two layers, and forwards all micro-batches before it goes
// back.
TEST(ActivationsTest, APipelineKeepsItOfEachMicroBatch) {
  constexpr int64_t kMicroBatches = 3, kLayersOfStage = 2;
  const Assignments gpt = With(Gpt(kMicroBatches), {"mesh.pp=2", "pipeline.balance=[3, 2]",
                                                    "recompute.micro_batches=never"});
  for (const auto& [policy, elements] : OfALayer()) {
    SCOPED_TRACE(policy[0]);
    std::vector<int64_t> expected;
    for (int64_t i = 1; i <= kMicroBatches; ++i) {
      expected.push_back(i * kFp32 * kLayersOfStage * elements);
    }
    EXPECT_EQ(Saved(GPipeStrategy(), SmallGptConfig(), gpt, policy, "blocks.1"), expected);
  }
}

// A convolution's output, and the mean and the variance of its channels, twice a block. Upsampling
// keeps nothing: of the blocks before it, what their last normalisation keeps of its output goes
// too. All other outputs are kept by who reads them.
TEST(ActivationsTest, AUNetSavesWhatItsConvolutionsMake) {
  constexpr int64_t kWidth = 16, kImage = 32;
  struct Level {
    int64_t channels, pixels, blocks;
    bool before_upsampling;
  };
  constexpr Level kLevels[] = {{kWidth, kImage * kImage, 2, false},
                               {2 * kWidth, kImage * kImage / 4, 2, true},
                               {4 * kWidth, kImage * kImage / 16, 1, true}};
  int64_t elements = 0;
  for (const Level& level : kLevels) {
    const int64_t output = b * level.pixels * level.channels;
    elements += level.blocks * 2 * (output + 2 * level.channels);
    if (level.before_upsampling) elements += output;
  }
  EXPECT_EQ(Saved(DdpStrategy(), SmallUNetConfig(),
                  {absl::StrCat("model.width=", kWidth), absl::StrCat("batch.size=", b),
                   "mesh.dp=1", "validation.batch_size=1", "train.steps=1"},
                  {"recompute.operations=[\"convolution\"]"}, "head"),
            std::vector<int64_t>({kFp32 * elements}));
}

// What a run measures is what its rehearsal predicts, and falls with each policy.
TEST(ActivationsTest, AreMeasuredAsPredicted) {
  const auto peak = [](const Assignments& policy) {
    const Assignments all = With(Gpt(1), policy);
    const auto predicted = RehearseStrategy(DdpStrategy(), MakeModel, SmallGptConfig(), all);
    const auto measured = RunStrategy(DdpStrategy(), MakeModel, SmallGptConfig(), all);
    EXPECT_EQ(measured[0].memory.peak(MemoryClass::kActivations),
              predicted[0].memory.peak(MemoryClass::kActivations));
    return measured[0].memory.peak(MemoryClass::kActivations);
  };
  const int64_t none = peak({}), selective = peak(kSelective), both = peak(kBoth),
                full = peak(kFull);
  EXPECT_GT(none, selective);
  EXPECT_GT(selective, both);
  EXPECT_GT(both, full);
}

}  // namespace
}  // namespace lockstep
