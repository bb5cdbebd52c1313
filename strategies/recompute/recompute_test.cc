// What backward recomputes changes no bit of any strategy, and costs what is predicted.

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/ddp/ddp.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/fsdp_pipe/fsdp_pipe.h"
#include "strategies/gpipe/gpipe.h"
#include "strategies/layerwise/layerwise.h"
#include "strategies/lora/lora.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"
#include "strategies/testing/split_workloads.h"
#include "strategies/tp/tp.h"
#include "strategies/zero1/zero1.h"
#include "strategies/zero2/zero2.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

struct Case {
  StrategyDefinition strategy;
  Assignments mesh;
};

// Blocks, operations, all of both inside stages that are recomputed too.
std::vector<Assignments> Policies(SmallModel model) {
  const Assignments full = {"recompute.granularity=full"},
                    stages = {"recompute.micro_batches=except_last"};
  switch (model) {
    case SmallModel::kGpt:
    case SmallModel::kLlama:
      return {full,
              stages,
              {"recompute.granularity=selective"},
              {"recompute.operations=[\"attention\", \"mlp\"]"},
              {"recompute.micro_batches=always", "recompute.operations=[\"mlp\"]",
               "recompute.blocks=[\"blocks.1\", \"embedding\"]"}};
    case SmallModel::kResNet:
      return {full,
              stages,
              {"recompute.operations=[\"convolution\"]"},
              {"recompute.micro_batches=always", "recompute.operations=[\"convolution\"]",
               "recompute.blocks=[\"stem\", \"layer2.*\"]"}};
    case SmallModel::kUNet:
      return {full,
              stages,
              {"recompute.operations=[\"convolution\"]"},
              {"recompute.micro_batches=always", "recompute.operations=[\"convolution\"]",
               "recompute.blocks=[\"down*\", \"up0\"]"}};
  }
  return {};
}

struct Outcome {
  std::vector<RankReport> ranks;
  std::vector<double> norms;
};

Outcome TrainOn(const StrategyDefinition& strategy, const std::string& config,
                const Assignments& assignments) {
  Outcome outcome = {RunStrategy(strategy, MakeModel, config, assignments), {}};
  outcome.norms = GradientNorms();
  return outcome;
}

void ExpectSame(const Outcome& outcome, const Outcome& expected) {
  ExpectSameBits(outcome.ranks, expected.ranks);
  ASSERT_FALSE(expected.norms.empty());
  EXPECT_EQ(outcome.norms, expected.norms);
}

// Three micro-batches of a shard, which has seven samples: 3, 2 and 2.
Assignments Cut(SmallModel model, int shards) {
  Assignments cut = {"cut.micro_batches=3", absl::StrCat("cut.shards=", shards), "train.steps=3",
                     absl::StrCat("batch.size=", 7 * shards)};
  const bool is_image = model == SmallModel::kResNet || model == SmallModel::kUNet;
  if (is_image) cut.push_back("model.width=4");
  return cut;
}

class RecomputeTest : public ::testing::TestWithParam<SmallModel> {
 protected:
  const Outcome& Single(int shards) {
    if (!singles_.contains(shards)) {
      singles_[shards] =
          TrainOn(SingleStrategy(), SmallConfig(GetParam()), Cut(GetParam(), shards));
    }
    return singles_[shards];
  }

  // Runs every policy, `shards` ranks sharing the batch.
  void ExpectBitsOfSingle(const Case& c, int shards) {
    for (const Assignments& policy : Policies(GetParam())) {
      SCOPED_TRACE(absl::StrCat(c.strategy.name, " ", absl::StrJoin(With(c.mesh, policy), " ")));
      const Outcome outcome = TrainOn(c.strategy, SmallConfig(GetParam()),
                                      With(With(Cut(GetParam(), shards), c.mesh), policy));
      ExpectSame(outcome, Single(shards));
      for (const RankReport& report : outcome.ranks) ExpectPredictedTraffic(report);
      // Narrow convolutions are mostly what tensors are rounded up by.
      if (GetParam() == SmallModel::kGpt) ExpectPredictedCosts(outcome.ranks);
    }
  }

 private:
  std::map<int, Outcome> singles_;
};

TEST_P(RecomputeTest, DataParallelRanksHaveTheBitsOfSingle) {
  for (const Case& c : {Case{DdpStrategy(),
                             {"mesh.dp=2", "data_parallel.first_bucket_bytes=512",
                              "data_parallel.bucket_bytes=4096"}},
                        Case{Zero1Strategy(), {"mesh.dp=2"}}, Case{Zero2Strategy(), {"mesh.dp=2"}},
                        Case{FsdpStrategy(), {"mesh.dp=2"}},
                        Case{FsdpStrategy(), {"mesh.dp=2", "data_parallel.reshard=false"}}}) {
    ExpectBitsOfSingle(c, 2);
  }
  ExpectBitsOfSingle({FsdpStrategy(), {"mesh.dp=4", "data_parallel.reshard=2"}}, 4);
  ExpectBitsOfSingle({FsdpStrategy(), {"mesh.dp=2", "mesh.replicas=2"}}, 4);
}

TEST_P(RecomputeTest, PipelinesHaveTheBitsOfSingle) {
  for (const Case& c :
       {Case{LayerwiseStrategy(), {"mesh.pp=3"}}, Case{GPipeStrategy(), {"mesh.pp=1"}},
        Case{GPipeStrategy(), {"mesh.pp=2", "pipeline.schedule=1f1b", "pipeline.balance=\"size\""}},
        Case{GPipeStrategy(), {"mesh.pp=2", "pipeline.schedule=zb_h1"}},
        Case{GPipeStrategy(), {"mesh.pp=2", "pipeline.schedule=zb_v"}}}) {
    ExpectBitsOfSingle(c, 1);
  }
  for (const char* how : {"pipeline.schedule=zb_h1", "data_parallel.unshard=micro_batch"}) {
    ExpectBitsOfSingle({FsdpPipeStrategy(), {"mesh.pp=2", "mesh.dp=2", how}}, 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RecomputeTest,
                         ::testing::Values(SmallModel::kGpt, SmallModel::kLlama,
                                           SmallModel::kResNet, SmallModel::kUNet),
                         [](const auto& parameter) { return Name(parameter.param); });

// --- layers that ranks compute together ---------------------------------------------------------

SmallModel ModelOf(SplitKind kind) {
  return kind == SplitKind::kResNet ? SmallModel::kResNet
         : kind == SplitKind::kUNet ? SmallModel::kUNet
                                    : SmallModel::kGpt;
}

class RecomputeTpTest : public ::testing::TestWithParam<SplitKind> {};

// What is recomputed sends its activations again.
TEST_P(RecomputeTpTest, HasTheBitsOfTpAtThePredictedTraffic) {
  const SplitWorkload workload = WorkloadOf(GetParam());
  const Assignments cut = {"cut.micro_batches=3", "batch.size=7", "train.steps=3"};
  const auto train = [&](const StrategyDefinition& strategy, const Assignments& mesh) {
    Outcome outcome = {Train(strategy, workload, With(cut, mesh)), {}};
    outcome.norms = GradientNorms();
    return outcome;
  };
  const Outcome tp = train(TpStrategy(), {"mesh.tp=2"});
  const auto sent = [](const Outcome& outcome) {
    return outcome.ranks[0].traffic.Of(Operation::kAllReduce, "activations").wire_bytes +
           outcome.ranks[0].traffic.Of(Operation::kReduceScatter, "activations").wire_bytes;
  };
  for (const Assignments& policy : Policies(ModelOf(GetParam()))) {
    for (const Case& c :
         {Case{TpStrategy(), {"mesh.tp=2"}},
          Case{GPipeStrategy(), {"mesh.tp=2", "mesh.pp=2", "pipeline.schedule=zb_h1"}}}) {
      SCOPED_TRACE(absl::StrCat(c.strategy.name, " ", absl::StrJoin(policy, " ")));
      const Outcome outcome = train(c.strategy, With(c.mesh, policy));
      ExpectSame(outcome, tp);
      for (const RankReport& report : outcome.ranks) ExpectPredictedTraffic(report);
      if (c.strategy.name != "tp") continue;
      if (policy[0] == "recompute.granularity=selective") {
        EXPECT_EQ(sent(outcome), sent(tp));  // nothing is sent inside of attention
      } else {
        EXPECT_GT(sent(outcome), sent(tp));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, RecomputeTpTest,
                         ::testing::Values(SplitKind::kGpt, SplitKind::kGptSplitSequence,
                                           SplitKind::kResNet, SplitKind::kUNet),
                         [](const auto& parameter) { return Name(parameter.param); });

// --- adapters -----------------------------------------------------------------------------------

// Nothing before the first adapter is computed again. The first layer is frozen, the second up to
// its MLP's second half.
TEST(RecomputeAdaptersTest, HaveTheBitsOfLora) {
  const Assignments all = {"lora.layers=[\"blocks.1.network.down\"]", "lora.rank=2",
                           "cut.micro_batches=3", "batch.size=14"};
  const Outcome lora = TrainOn(LoraStrategy(), SmallGptConfig(), With(all, {"cut.shards=2"}));
  const Outcome tp =
      TrainOn(DdpStrategy(), SmallGptConfig(),
              With(all, {"mesh.dp=2", "mesh.tp=2", "tensor_parallel.sequence_parallel=true"}));
  for (const Assignments& policy : Policies(SmallModel::kGpt)) {
    SCOPED_TRACE(absl::StrJoin(policy, " "));
    for (const Case& c : {Case{DdpStrategy(), {"mesh.dp=2"}}, Case{FsdpStrategy(), {"mesh.dp=2"}},
                          Case{FsdpPipeStrategy(),
                               {"mesh.dp=2", "mesh.pp=2", "data_parallel.unshard=micro_batch"}}}) {
      const Outcome outcome =
          TrainOn(c.strategy, SmallGptConfig(), With(With(all, c.mesh), policy));
      ExpectSame(outcome, lora);
      for (const RankReport& report : outcome.ranks) ExpectPredictedTraffic(report);
    }
    const Outcome split = TrainOn(
        DdpStrategy(), SmallGptConfig(),
        With(With(all, {"mesh.dp=2", "mesh.tp=2", "tensor_parallel.sequence_parallel=true"}),
             policy));
    ExpectSame(split, tp);
    for (const RankReport& report : split.ranks) ExpectPredictedTraffic(report);
  }
}

// --- less than fp32 -----------------------------------------------------------------------------

TEST(RecomputePrecisionTest, HasTheBitsOfSingle) {
  for (const SmallModel model : {SmallModel::kGpt, SmallModel::kResNet}) {
    for (const char* compute : {"precision.compute=bf16", "precision.compute=fp16"}) {
      const Assignments cut = With(Cut(model, 2), {compute});
      const Outcome single = TrainOn(SingleStrategy(), SmallConfig(model), cut);
      for (const Assignments& policy : Policies(model)) {
        for (const Case& c :
             {Case{FsdpStrategy(), {"mesh.dp=2"}},
              Case{GPipeStrategy(), {"mesh.dp=2", "mesh.pp=2", "pipeline.schedule=zb_h1"}}}) {
          SCOPED_TRACE(absl::StrCat(c.strategy.name, " ", compute, absl::StrJoin(policy, " ")));
          ExpectSame(TrainOn(c.strategy, SmallConfig(model), With(With(cut, c.mesh), policy)),
                     single);
        }
      }
    }
  }
}

// --- what cannot be run -------------------------------------------------------------------------

TEST(RecomputeRefusalTest, ComesBeforeRanksStart) {
  const auto problem = [](const StrategyDefinition& strategy, const std::string& config,
                          const Assignments& assignments) {
    return std::string(FailStrategy(strategy, MakeModel, config, assignments).message());
  };
  for (const StrategyDefinition& strategy : {DdpStrategy(), GPipeStrategy(), TpStrategy()}) {
    EXPECT_THAT(problem(strategy, SmallGptConfig(), {"recompute.blocks=[\"block.0\"]"}),
                HasSubstr("no block matches 'block.0'; there are blocks.0, blocks.1"));
    EXPECT_THAT(problem(strategy, SmallResNetConfig(), {"recompute.granularity=selective"}),
                HasSubstr("no operation 'attention'; it has convolution"));
    EXPECT_THAT(problem(strategy, SmallGptConfig(),
                        {"recompute.granularity=full", "recompute.operations=[\"mlp\"]"}),
                HasSubstr("recompute.granularity says which blocks"));
    EXPECT_THAT(problem(strategy, SmallGptConfig(), {"recompute.layers=[\"head\"]"}),
                HasSubstr("recompute.layers"));
  }
}

// On one rank too, where the preset is otherwise the program of `single`.
TEST(RecomputeAdaptersTest, OneRankRecomputes) {
  const Assignments lora = {"lora.layers=[\"*.qkv.q\"]"};
  const Outcome kept = TrainOn(LoraStrategy(), SmallGptConfig(), lora);
  const Outcome full =
      TrainOn(LoraStrategy(), SmallGptConfig(), With(lora, {"recompute.granularity=full"}));
  ExpectSame(full, kept);
  EXPECT_LT(full.ranks[0].memory.peak(MemoryClass::kActivations),
            kept.ranks[0].memory.peak(MemoryClass::kActivations));
}

}  // namespace
}  // namespace lockstep
