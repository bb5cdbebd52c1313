// Sums over features are trees over [cut] features leaves, and those over tokens over [cut] tokens
// leaves: whoever holds the leaves, one rank or several along tp, trains to the same bits.

#include <cstdint>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/fsdp_pipe/fsdp_pipe.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"
#include "strategies/testing/split_workloads.h"
#include "strategies/tp/tp.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What is trained, beside the kind of model.
struct Variant {
  std::string name;
  Assignments assignments;
};
void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

const Assignments kAdapters = {R"(lora.layers=["*"])", "lora.rank=2", "lora.dropout=0.1"};

std::vector<Variant> Variants() {
  return {{"Fp32", {}},
          {"Bf16", {"precision.compute=bf16"}},
          {"Fp16", {"precision.compute=fp16"}},
          {"Adapters", kAdapters},
          {"AdaptersBf16", With(kAdapters, {"precision.compute=bf16"})}};
}

class FeaturesTest : public ::testing::TestWithParam<std::tuple<SplitKind, Variant>> {
 protected:
  std::vector<RankReport> Run(const StrategyDefinition& strategy, const Assignments& cut) {
    const auto& [kind, variant] = GetParam();
    std::vector<RankReport> reports =
        Train(strategy, WorkloadOf(kind), With(variant.assignments, cut));
    norms_ = GradientNorms();
    return reports;
  }
  Assignments Leaves(int leaves) const { return LeavesOf(std::get<0>(GetParam()), leaves); }
  // Trains on a mesh, and expects the bits of the run before.
  void ExpectBits(const StrategyDefinition& strategy, const Assignments& mesh,
                  const std::vector<RankReport>& single) {
    SCOPED_TRACE(absl::StrCat(strategy.name, " ", mesh[0]));
    const std::vector<double> expected = norms_;
    const std::vector<RankReport> ranks = Run(strategy, mesh);
    ExpectSameBits(ranks, single);
    EXPECT_EQ(norms_, expected);
    for (const RankReport& rank : ranks) ExpectPredictedTraffic(rank);
  }

 private:
  std::vector<double> norms_;
};

INSTANTIATE_TEST_SUITE_P(Models, FeaturesTest,
                         ::testing::Combine(::testing::Values(SplitKind::kGpt,
                                                              SplitKind::kGptSplitSequence,
                                                              SplitKind::kResNet, SplitKind::kUNet),
                                            ::testing::ValuesIn(Variants())),
                         [](const auto& parameters) {
                           return absl::StrCat(Name(std::get<0>(parameters.param)),
                                               std::get<1>(parameters.param).name);
                         });

TEST_P(FeaturesTest, OneTwoAndFourRanksHaveTheBitsOfSingle) {
  const Assignments cut = With(Leaves(4), {"train.steps=4", "cut.micro_batches=2"});
  const auto single = Run(SingleStrategy(), cut);
  for (const char* mesh : {"mesh.tp=1", "mesh.tp=2", "mesh.tp=4"}) {
    ExpectBits(TpStrategy(), With({mesh}, cut), single);
  }
}

// Three ranks, each with two leaves of a vocabulary of 16, or of 6 heads of 12: the tree over six
// is ((0 + 1) + (2 + 3)) + (4 + 5).
TEST_P(FeaturesTest, RanksThatAreNoPowerOfTwoHoldNodesToo) {
  const Assignments cut = With(Leaves(6), {"train.steps=2"});
  const auto single = Run(SingleStrategy(), cut);
  for (const char* mesh : {"mesh.tp=3", "mesh.tp=6"}) {
    ExpectBits(TpStrategy(), With({mesh}, cut), single);
  }
}

// Trees nest: those over shards are outside.
TEST_P(FeaturesTest, ShardsLieOutside) {
  const Assignments cut = With(Leaves(4), {"cut.shards=2", "train.steps=3"});
  const auto single = Run(SingleStrategy(), cut);
  const Assignments mesh = {"mesh.tp=2", "mesh.dp=2"};
  ExpectBits(TpStrategy(), With(mesh, cut), single);
  ExpectBits(FsdpStrategy(), With(mesh, cut), single);
  const Assignments stages = With(mesh, {"mesh.pp=2"});
  ExpectBits(FsdpPipeStrategy(), With(stages, cut), single);
  // Weight gradients that come later, and activations that are computed again.
  ExpectBits(FsdpPipeStrategy(), With(With(stages, {"pipeline.schedule=zb_h1"}), cut), single);
  ExpectBits(TpStrategy(), With(With(mesh, {"recompute.granularity=full"}), cut), single);
}

// The cut belongs to the run: begun on two ranks, it goes on as alone on four or on one.
TEST(FeaturesCheckpointTest, AChangeOfMeshKeepsTheBits) {
  for (const SplitKind kind : {SplitKind::kGptSplitSequence, SplitKind::kResNet}) {
    const SplitWorkload workload = WorkloadOf(kind);
    const Assignments all = With(With(workload.assignments, LeavesOf(kind, 4)),
                                 {"train.steps=4", "checkpoint.every=2"});
    const auto single = RunStrategy(SingleStrategy(), MakeModel, workload.config, all);
    for (const auto& [strategy, mesh] :
         {std::pair(TpStrategy(), "mesh.tp=4"), std::pair(SingleStrategy(), "mesh.tp=1")}) {
      RunStrategy(TpStrategy(), MakeModel, workload.config,
                  With(all, {"mesh.tp=2", "train.steps=2"}));
      const auto goes_on = ResumeStrategy(strategy, MakeModel, workload.config, With(all, {mesh}));
      EXPECT_EQ(goes_on[0].losses,
                std::vector<double>(single[0].losses.begin() + 2, single[0].losses.end()));
      EXPECT_EQ(goes_on[0].parameter_hash, single[0].parameter_hash) << mesh;
    }
  }
}

// A of a column-split layer and B of a row-split one have an accumulator for each leaf.
TEST(FeaturesMemoryTest, AccumulatorsArePredicted) {
  for (const char* micro_batches : {"cut.micro_batches=1", "cut.micro_batches=2"}) {
    const Assignments cut = With(kAdapters, {"cut.features=4", micro_batches});
    for (const SplitKind kind : {SplitKind::kGpt, SplitKind::kResNet}) {
      const auto single = Train(SingleStrategy(), WorkloadOf(kind), cut);
      ExpectPredictedCosts(single);
      ExpectPredictedCosts(Train(TpStrategy(), WorkloadOf(kind), With(cut, {"mesh.tp=2"})));
      if (kind != SplitKind::kGpt) continue;
      const auto whole = Train(SingleStrategy(), WorkloadOf(kind), With(cut, {"cut.features=1"}));
      // Two layers of four such factors, 2 x 48 each; of the first leaf in the gradient itself.
      EXPECT_EQ(single[0].memory.peak(MemoryClass::kGradients) -
                    whole[0].memory.peak(MemoryClass::kGradients),
                3 * 2 * 4 * 2 * 48 * sizeof(float));
    }
  }
}

// What micro-batches add to a token leaf is a chain: every parameter has an accumulator for each
// leaf that the rank holds. A single micro-batch's leaves are added at once.
TEST(FeaturesMemoryTest, TokenLeavesHaveAccumulatorsWhileMicroBatchesAddUp) {
  const SplitWorkload gpt = WorkloadOf(SplitKind::kGptSplitSequence);
  const auto gradients = [&](const StrategyDefinition& strategy, const Assignments& assignments) {
    const auto reports = Train(strategy, gpt, assignments);
    ExpectPredictedCosts(reports);
    return reports[0].memory.peak(MemoryClass::kGradients);
  };
  const Assignments several = {"cut.micro_batches=2"}, one = {"cut.micro_batches=1"};
  const int64_t whole = gradients(SingleStrategy(), several);
  EXPECT_EQ(gradients(SingleStrategy(), With(several, {"cut.tokens=4"})), 4 * whole);
  EXPECT_EQ(gradients(SingleStrategy(), With(one, {"cut.tokens=4"})), whole);
  const Assignments mesh = {"cut.tokens=4", "mesh.tp=2"};
  EXPECT_LT(gradients(TpStrategy(), With(several, mesh)), 4 * whole * 6 / 10);
  EXPECT_LT(gradients(TpStrategy(), With(one, mesh)), whole * 6 / 10);
}

// One micro-batch, whose token leaves are added at once, on meshes where ranks have several shards.
TEST(TokensTest, OneMicroBatchHasTheBitsOfSingleToo) {
  const SplitWorkload gpt = WorkloadOf(SplitKind::kGptSplitSequence);
  for (const char* compute : {"precision.compute=fp32", "precision.compute=bf16"}) {
    const Assignments cut = {"cut.tokens=4",        "cut.features=4", "cut.shards=4",
                             "cut.micro_batches=1", "train.steps=3",  compute};
    const auto single = Train(SingleStrategy(), gpt, cut);
    for (const auto& [strategy, mesh] :
         {std::pair(TpStrategy(), Assignments{"mesh.tp=2", "mesh.dp=2"}),
          std::pair(TpStrategy(), Assignments{"mesh.tp=4", "mesh.dp=1"}),
          std::pair(FsdpStrategy(), Assignments{"mesh.tp=2", "mesh.dp=2"}),
          std::pair(FsdpStrategy(), Assignments{"mesh.tp=4", "mesh.dp=2"}),
          std::pair(FsdpPipeStrategy(), Assignments{"mesh.tp=2", "mesh.dp=2", "mesh.pp=2"})}) {
      SCOPED_TRACE(absl::StrCat(strategy.name, " ", absl::StrJoin(mesh, " ")));
      const auto ranks = Train(strategy, gpt, With(cut, mesh));
      ExpectSameBits(ranks, single);
      ExpectPredictedCosts(ranks);
    }
  }
}

// The cut is what says how sums are made: other leaves give other bits.
TEST(FeaturesCutTest, OtherLeavesAreOtherSums) {
  const SplitWorkload gpt = WorkloadOf(SplitKind::kGpt);
  const auto hash = [&](const char* leaves) {
    return Train(SingleStrategy(), gpt, {leaves, "train.steps=2"})[0].parameter_hash;
  };
  EXPECT_EQ(hash("cut.features=1"),
            Train(SingleStrategy(), gpt, {"train.steps=2"})[0].parameter_hash);
  EXPECT_NE(hash("cut.features=1"), hash("cut.features=2"));
  EXPECT_NE(hash("cut.features=2"), hash("cut.features=4"));
  EXPECT_EQ(hash("cut.tokens=1"), hash("cut.features=1"));
  EXPECT_NE(hash("cut.tokens=1"), hash("cut.tokens=2"));
}

TEST(FeaturesRefusalTest, SaysWhatDoesNotFit) {
  const auto problem = [](SplitKind kind, const StrategyDefinition& strategy,
                          const Assignments& assignments) {
    const SplitWorkload workload = WorkloadOf(kind);
    return std::string(
        FailStrategy(strategy, MakeModel, workload.config, With(workload.assignments, assignments))
            .message());
  };
  EXPECT_THAT(problem(SplitKind::kGpt, SingleStrategy(), {"cut.features=8"}),
              AllOf(HasSubstr("cut.features is 8"), HasSubstr("'blocks.0.attention.qkv'"),
                    HasSubstr("12 attention heads"), HasSubstr("8 feature leaves")));
  EXPECT_THAT(problem(SplitKind::kResNet, SingleStrategy(), {"cut.features=8"}),
              AllOf(HasSubstr("layer1.0.unit1.conv"), HasSubstr("12 output channels")));
  EXPECT_THAT(problem(SplitKind::kGpt, TpStrategy(), {"cut.features=6", "mesh.tp=2"}),
              AllOf(HasSubstr("features is 6, but mesh.tp is 2"),
                    HasSubstr("set mesh.tp=1, 3 or 6, or cut.features=2")));
}

}  // namespace
}  // namespace lockstep
