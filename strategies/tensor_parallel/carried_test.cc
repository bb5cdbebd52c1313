// Tensor parallelism inside other strategies: what they train is what `tp` does, to the bit, since
// they add up in its order.

#include <algorithm>
#include <ostream>
#include <string>
#include <tuple>
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
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"
#include "strategies/testing/split_workloads.h"
#include "strategies/tp/tp.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A strategy on a mesh, and the mesh on which `tp` does the same sums.
struct Carrier {
  std::string name;
  StrategyDefinition strategy;
  Assignments mesh;
  Assignments of_tp;
};

void PrintTo(const Carrier& carrier, std::ostream* out) { *out << carrier.name; }

std::vector<Carrier> Carriers() {
  return {
      {"DdpTp2", DdpStrategy(), {"mesh.tp=2"}, {"mesh.tp=2"}},
      {"DdpDp2Tp3", DdpStrategy(), {"mesh.dp=2", "mesh.tp=3"}, {"mesh.dp=2", "mesh.tp=3"}},
      {"LayerwisePp2Tp2", LayerwiseStrategy(), {"mesh.pp=2", "mesh.tp=2"}, {"mesh.tp=2"}},
      {"LayerwisePp4Tp3", LayerwiseStrategy(), {"mesh.pp=4", "mesh.tp=3"}, {"mesh.tp=3"}},
      {"LayerwiseDp2Pp2Tp2",
       LayerwiseStrategy(),
       {"mesh.dp=2", "mesh.pp=2", "mesh.tp=2"},
       {"mesh.dp=2", "mesh.tp=2"}},
      {"GPipeDp2Pp2Tp2",
       GPipeStrategy(),
       {"mesh.dp=2", "mesh.pp=2", "mesh.tp=2", "pipeline.schedule=1f1b"},
       {"mesh.dp=2", "mesh.tp=2"}},
      {"GPipePp2Tp2ZeroBubbleV",
       GPipeStrategy(),
       {"mesh.pp=2", "mesh.tp=2", "pipeline.schedule=zb_v"},
       {"mesh.tp=2"}},
      {"FsdpPipeDp2Pp2Tp2DualPipeV",
       FsdpPipeStrategy(),
       {"mesh.dp=2", "mesh.pp=2", "mesh.tp=2", "pipeline.schedule=dualpipe_v",
        "cut.micro_batches=4", "batch.size=16"},
       {"mesh.dp=2", "mesh.tp=2", "cut.micro_batches=4", "batch.size=16"}},
      {"FsdpPipeDp2Pp2Tp2",
       FsdpPipeStrategy(),
       {"mesh.dp=2", "mesh.pp=2", "mesh.tp=2", "pipeline.schedule=zb_h1"},
       {"mesh.dp=2", "mesh.tp=2"}},
      {"FsdpPipeDp2Pp2Tp2MicroBatch",
       FsdpPipeStrategy(),
       {"mesh.dp=2", "mesh.pp=2", "mesh.tp=2", "data_parallel.unshard=micro_batch",
        "pipeline.schedule=1f1b", "recompute.micro_batches=always"},
       {"mesh.dp=2", "mesh.tp=2"}},
      {"FsdpDp2Tp2",
       FsdpStrategy(),
       {"mesh.dp=2", "mesh.tp=2", "cut.micro_batches=1"},
       {"mesh.dp=2", "mesh.tp=2", "cut.micro_batches=1"}},
      {"FsdpDp3Tp2",
       FsdpStrategy(),
       {"mesh.dp=3", "mesh.tp=2", "data_parallel.reshard=false"},
       {"mesh.dp=3", "mesh.tp=2"}},
      {"FsdpDp2Tp3", FsdpStrategy(), {"mesh.dp=2", "mesh.tp=3"}, {"mesh.dp=2", "mesh.tp=3"}},
  };
}

class CarriedTest : public ::testing::TestWithParam<std::tuple<Carrier, SplitKind>> {};

INSTANTIATE_TEST_SUITE_P(Meshes, CarriedTest,
                         ::testing::Combine(::testing::ValuesIn(Carriers()),
                                            ::testing::Values(SplitKind::kGpt,
                                                              SplitKind::kGptSplitSequence,
                                                              SplitKind::kResNet)),
                         [](const auto& parameters) {
                           return absl::StrCat(std::get<0>(parameters.param).name,
                                               Name(std::get<1>(parameters.param)));
                         });

TEST_P(CarriedTest, HasTheBitsOfTpAtThePredictedCost) {
  const auto& [carrier, kind] = GetParam();
  const SplitWorkload workload = WorkloadOf(kind);
  const auto tp = Train(TpStrategy(), workload, carrier.of_tp);
  const std::vector<double> norms = GradientNorms();
  const auto carried = Train(carrier.strategy, workload, carrier.mesh);
  EXPECT_EQ(GradientNorms(), norms);
  ASSERT_FALSE(tp[0].losses.empty());
  for (const RankReport& rank : carried) {
    EXPECT_EQ(rank.losses, tp[0].losses);
    EXPECT_EQ(rank.parameter_hash, tp[0].parameter_hash);
    EXPECT_EQ(rank.validation.loss, tp[0].validation.loss);
    EXPECT_EQ(rank.validation.accuracy, tp[0].validation.accuracy);
    ExpectPredictedTraffic(rank);
    for (const CostPrediction::Memory& predicted : rank.prediction.memory) {
      const auto measured = static_cast<double>(rank.memory.peak(predicted.memory_class));
      const auto bytes = static_cast<double>(predicted.bytes);
      // Each tensor is rounded up to 64 bytes, of small slices some percent.
      EXPECT_LE(measured, 1.05 * bytes + 512) << Name(predicted.memory_class);
      EXPECT_GE(measured, 0.95 * bytes) << Name(predicted.memory_class);
    }
  }
}

// Replicas sum shards along the same tree as ranks without them.
TEST(CarriedCurveTest, ReplicasHaveTheBitsOfTp) {
  for (const SplitKind kind : {SplitKind::kGpt, SplitKind::kGptSplitSequence, SplitKind::kResNet}) {
    const SplitWorkload workload = WorkloadOf(kind);
    const Assignments steps = {"train.steps=4", "batch.size=16", "cut.micro_batches=2"};
    const auto tp = Train(TpStrategy(), workload, With(steps, {"mesh.dp=4", "mesh.tp=2"}));
    const auto fsdp =
        Train(FsdpStrategy(), workload, With(steps, {"mesh.replicas=2", "mesh.dp=2", "mesh.tp=2"}));
    ExpectSameBits(fsdp, tp);
    for (const RankReport& rank : fsdp) ExpectPredictedTraffic(rank);
  }
}

TEST(CarriedCurveTest, IsThatOfSingle) {
  const Assignments cut = {"train.steps=10", "cut.micro_batches=2", "cut.features=2",
                           "cut.tokens=2"};
  const SplitWorkload workload = WorkloadOf(SplitKind::kGptSplitSequence);
  const auto single = Train(SingleStrategy(), workload, With(cut, {"cut.shards=2"}));
  const std::vector<double> norms = GradientNorms();
  struct Setup {
    StrategyDefinition strategy;
    Assignments mesh;
  };
  for (const Setup& setup : {Setup{FsdpStrategy(), {"mesh.dp=2", "mesh.tp=2"}},
                             Setup{LayerwiseStrategy(), {"mesh.dp=2", "mesh.pp=2", "mesh.tp=2"}}}) {
    ExpectSameBits(Train(setup.strategy, workload, With(cut, setup.mesh)), single);
    EXPECT_EQ(GradientNorms(), norms) << setup.strategy.name;
  }
}

TEST(CarriedMemoryTest, FallsAlongEachAxis) {
  // Wide enough that of a block norms and biases behind sums, which all ranks hold, are little.
  const SplitWorkload gpt = {SmallGptConfig(), {"model.heads=4", "model.width=128"}, {}};
  const auto peak = [&](const StrategyDefinition& strategy, const Assignments& mesh,
                        MemoryClass memory_class) {
    double most = 0;
    for (const RankReport& rank : Train(strategy, gpt, mesh)) {
      most = std::max(most, static_cast<double>(rank.memory.peak(memory_class)));
    }
    return most;
  };
  for (const MemoryClass memory_class :
       {MemoryClass::kParameters, MemoryClass::kGradients, MemoryClass::kOptimizerState}) {
    const auto falls = [&](const StrategyDefinition& strategy, const Assignments& without) {
      return peak(strategy, With(without, {"mesh.tp=2"}), memory_class) /
             peak(strategy, without, memory_class);
    };
    EXPECT_NEAR(falls(FsdpStrategy(), {"mesh.dp=2"}), 0.5, 0.02) << Name(memory_class);
    EXPECT_NEAR(falls(LayerwiseStrategy(), {"mesh.pp=2"}), 0.5, 0.02) << Name(memory_class);
  }
}

TEST(CarriedPrecisionTest, HasTheBitsOfTpIn16BitsToo) {
  const SplitWorkload workload = WorkloadOf(SplitKind::kGptSplitSequence);
  for (const char* compute : {"bf16", "fp16"}) {
    const Assignments precision = {absl::StrCat("precision.compute=", compute)};
    const auto tp = Train(TpStrategy(), workload, With(precision, {"mesh.dp=2", "mesh.tp=2"}));
    const auto fsdp = Train(FsdpStrategy(), workload, With(precision, {"mesh.dp=2", "mesh.tp=2"}));
    const auto layerwise = Train(LayerwiseStrategy(), workload,
                                 With(precision, {"mesh.dp=2", "mesh.pp=2", "mesh.tp=2"}));
    for (const auto* carried : {&fsdp, &layerwise}) {
      for (const RankReport& rank : *carried) {
        EXPECT_EQ(rank.losses, tp[0].losses);
        EXPECT_EQ(rank.parameter_hash, tp[0].parameter_hash);
        ExpectPredictedTraffic(rank);
      }
    }
  }
}

// Saved under one strategy and mesh, resumed with no step to go under another, which saves it its
// own way: the same bits, and in the end the optimizer's state has come through as well.
TEST(CarriedCheckpointTest, AnyMeshResumesAnyOther) {
  for (const SplitKind kind : {SplitKind::kGptSplitSequence, SplitKind::kResNet}) {
    const SplitWorkload workload = WorkloadOf(kind);
    const Assignments all =
        With(workload.assignments, {"train.steps=2", "checkpoint.every=1", "cut.micro_batches=1"});
    const auto first = RunStrategy(FsdpStrategy(), MakeModel, workload.config,
                                   With(With(all, workload.options), {"mesh.dp=2", "mesh.tp=2"}));
    struct Hop {
      StrategyDefinition strategy;
      Assignments mesh;
    };
    const Hop hops[] = {{DdpStrategy(), {"mesh.dp=4"}},
                        {FsdpStrategy(), {"mesh.dp=3", "mesh.tp=3"}},
                        {LayerwiseStrategy(), {"mesh.pp=2", "mesh.tp=2"}},
                        {FsdpStrategy(), {"mesh.replicas=2", "mesh.dp=2", "mesh.tp=2"}},
                        {SingleStrategy(), {}},
                        {LayerwiseStrategy(), {"mesh.dp=2", "mesh.pp=3", "mesh.tp=3"}},
                        {FsdpStrategy(), {"mesh.dp=2", "mesh.tp=4", "checkpoint.files=whole"}},
                        {TpStrategy(), {"mesh.tp=3"}},
                        {FsdpStrategy(), {"mesh.dp=4"}},
                        {FsdpStrategy(), {"mesh.dp=2", "mesh.tp=2"}}};
    for (const Hop& hop : hops) {
      const auto resumed =
          ResumeStrategy(hop.strategy, MakeModel, workload.config, With(all, hop.mesh));
      EXPECT_EQ(resumed[0].parameter_hash, first[0].parameter_hash)
          << hop.strategy.name << " " << absl::StrJoin(hop.mesh, " ");
    }
    // The next steps are those of a run that was never stopped.
    const Assignments mesh = With({"mesh.dp=2", "mesh.tp=2", "train.steps=4"}, workload.options);
    const auto goes_on =
        ResumeStrategy(FsdpStrategy(), MakeModel, workload.config, With(all, mesh));
    const auto whole = RunStrategy(FsdpStrategy(), MakeModel, workload.config, With(all, mesh));
    ASSERT_EQ(goes_on[0].losses.size(), 2u);
    EXPECT_EQ(goes_on[0].losses[1], whole[0].losses[3]);
    EXPECT_EQ(goes_on[0].parameter_hash, whole[0].parameter_hash);
  }
}

TEST(CarriedRefusalTest, SaysWhatDoesNotFit) {
  const SplitWorkload gpt = WorkloadOf(SplitKind::kGpt), resnet = WorkloadOf(SplitKind::kResNet);
  const auto problem = [](const StrategyDefinition& strategy, const SplitWorkload& workload,
                          const Assignments& assignments) {
    return std::string(
        FailStrategy(strategy, MakeModel, workload.config, With(workload.assignments, assignments))
            .message());
  };
  for (const StrategyDefinition& strategy : {FsdpStrategy(), LayerwiseStrategy()}) {
    EXPECT_THAT(problem(strategy, gpt, {"mesh.tp=5"}),
                AllOf(HasSubstr("mesh.tp is 5"), HasSubstr("12 attention heads")));
    EXPECT_THAT(problem(strategy, resnet, {"mesh.tp=2", "tensor_parallel.sequence_parallel=true"}),
                HasSubstr("no sequence"));
    EXPECT_THAT(problem(strategy, gpt, {"mesh.tp=2", "tensor_parallel.sequence=true"}),
                HasSubstr("tensor_parallel.sequence_parallel"));
  }
  EXPECT_THAT(problem(FsdpStrategy(), gpt, {"mesh.pp=2"}),
              AllOf(HasSubstr("mesh.pp"), HasSubstr("use fsdp_pipe")));
  EXPECT_THAT(problem(SingleStrategy(), gpt, {"tensor_parallel.sequence_parallel=true"}),
              HasSubstr("unknown key tensor_parallel"));
}

}  // namespace
}  // namespace lockstep
