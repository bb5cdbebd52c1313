#include "strategies/tp/tp.h"

#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "core/checkpoint/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/ddp/ddp.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"
#include "strategies/testing/split_workloads.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Checkpoint(int step) {
  return absl::StrCat(RunFolder(), "/checkpoints/step-0000000", step, ".safetensors");
}

struct StoredTensor {
  std::string type;  // dtype and shape
  std::vector<float> values;
};

std::map<std::string, StoredTensor> TensorsOf(const std::string& path) {
  std::map<std::string, StoredTensor> tensors;
  const auto reader = SafetensorsReader::Open(path);
  EXPECT_TRUE(reader.ok()) << reader.status();
  if (!reader.ok()) return tensors;
  for (const SafetensorsTensor& tensor : reader->tensors()) {
    std::vector<float> values(static_cast<size_t>(tensor.bytes) / sizeof(float));
    EXPECT_TRUE(reader->Read(tensor, std::as_writable_bytes(std::span(values))).ok());
    tensors[tensor.name] = {absl::StrCat(tensor.dtype, absl::StrJoin(tensor.shape, "x")), values};
  }
  return tensors;
}

// --- the curve ----------------------------------------------------------------------------------

class TpTest : public ::testing::TestWithParam<std::tuple<SplitKind, int>> {
 protected:
  TpTest()
      : workload_(WorkloadOf(std::get<0>(GetParam()))),
        // So that each rank has one leaf, or two.
        cut_(LeavesOf(std::get<0>(GetParam()), std::get<1>(GetParam()) == 3 ? 6 : 4)),
        mesh_(With(cut_, {absl::StrCat("mesh.tp=", std::get<1>(GetParam()))})) {}

  const SplitWorkload workload_;
  const Assignments cut_, mesh_;
};

std::string NameOf(const ::testing::TestParamInfo<std::tuple<SplitKind, int>>& parameters) {
  return absl::StrCat(Name(std::get<0>(parameters.param)), std::get<1>(parameters.param));
}

INSTANTIATE_TEST_SUITE_P(Ranks, TpTest,
                         ::testing::Combine(::testing::Values(SplitKind::kGpt,
                                                              SplitKind::kGptSplitSequence,
                                                              SplitKind::kResNet, SplitKind::kUNet),
                                            ::testing::Values(2, 3, 4)),
                         NameOf);

TEST_P(TpTest, HasTheBitsOfSingle) {
  const Assignments steps = {"train.steps=10"};
  const auto single = Train(SingleStrategy(), workload_, With(cut_, steps));
  const std::vector<double> expected = GradientNorms();
  const auto tp = Train(TpStrategy(), workload_, With(mesh_, steps));
  ExpectSameBits(tp, single);
  EXPECT_FALSE(expected.empty());
  EXPECT_EQ(GradientNorms(), expected);
}

// Holds the gradients of two runs of a step to each other. After a step of momentum from zero, the
// momentum is the gradient.
TEST_P(TpTest, GradientsAreThoseOfSingle) {
  const Assignments sgd = {
      "train.steps=1",          "train.clip_norm=0",        "optimizer.kind=sgd",
      "optimizer.momentum=0.9", "optimizer.weight_decay=0", "checkpoint.files=whole"};
  Train(SingleStrategy(), workload_, With(cut_, sgd));
  const auto expected = TensorsOf(Checkpoint(1));
  Train(TpStrategy(), workload_, With(mesh_, sgd));
  const auto actual = TensorsOf(Checkpoint(1));
  ASSERT_EQ(actual.size(), expected.size());
  int gradients = 0;
  for (const auto& [name, whole] : expected) {
    const auto found = actual.find(name);
    ASSERT_NE(found, actual.end()) << name;
    EXPECT_EQ(found->second.type, whole.type) << name;
    EXPECT_EQ(found->second.values, whole.values) << name;
    gradients += absl::StrContains(name, "momentum") ? 1 : 0;
  }
  EXPECT_GT(gradients, 20);
}

// --- what it costs ------------------------------------------------------------------------------

TEST_P(TpTest, CostsAreThePredicted) {
  const auto reports = Train(TpStrategy(), workload_, mesh_);
  for (const RankReport& report : reports) {
    ExpectPredictedTraffic(report);
    for (const CostPrediction::Memory& predicted : report.prediction.memory) {
      const auto measured = static_cast<double>(report.memory.peak(predicted.memory_class));
      EXPECT_NEAR(measured / static_cast<double>(predicted.bytes), 1, 0.05)
          << Name(predicted.memory_class);
    }
  }
}

// Two layers, two micro-batches: of each block two sums forward and two backward, of the embedding
// one forward, of the head one backward, of the loss three.
TEST(TpCostTest, CollectivesOfAStepAreThoseOfMegatron) {
  constexpr int64_t kPasses = 2 * 4;  // micro-batches of four steps
  const auto whole =
      Train(TpStrategy(), WorkloadOf(SplitKind::kGpt), {"mesh.tp=2", "data.context=24"});
  const auto calls = [](const RankReport& report, Operation operation, const char* label) {
    return report.traffic.Of(operation, label).calls / kPasses;
  };
  for (const RankReport& report : whole) {
    EXPECT_EQ(calls(report, Operation::kAllReduce, "activations"), 2 * 2 + 1);
    EXPECT_EQ(calls(report, Operation::kAllReduce, "activation gradients"), 2 * 2 + 1);
    EXPECT_EQ(calls(report, Operation::kAllReduce, "cross entropy"), 3);
  }
  const auto split = Train(TpStrategy(), WorkloadOf(SplitKind::kGptSplitSequence), {"mesh.tp=2"});
  for (const RankReport& report : split) {
    for (const char* label : {"activations", "activation gradients"}) {
      EXPECT_EQ(calls(report, Operation::kAllGather, label), 2 * 2 + 1) << label;
      EXPECT_EQ(calls(report, Operation::kReduceScatter, label), 2 * 2 + 1) << label;
    }
    // Two norms and two biases behind sums in each layer, the last norm, and positions; once a
    // step.
    EXPECT_EQ(report.traffic.Of(Operation::kAllReduce, "replicated gradients").calls,
              4 * (2 * (2 * 2 + 2) + 2 + 1));
  }
  // An all-gather and a reduce-scatter send what an all-reduce does.
  const auto activations = [](const RankReport& report) {
    return report.traffic.Of("activations").wire_bytes +
           report.traffic.Of("activation gradients").wire_bytes;
  };
  EXPECT_DOUBLE_EQ(activations(split[0]), activations(whole[0]));
  // 12 samples of 24 tokens, width 48, 4 steps: what is sent, from the definition.
  EXPECT_DOUBLE_EQ(activations(whole[0]), 4.0 * (5 + 5) * 12 * 24 * 48 * sizeof(float));
}

// All calls of a rank in a step, by kind: two micro-batches of a model of two layers, or one of a
// ResNet of eight blocks, each split once; and among the shards one bucket of gradients.
TEST(TpCostTest, AStepMakesNoCallThatTheoryDoesNotHave) {
  using Calls = std::map<std::pair<Operation, std::string>, int64_t>;
  const auto calls = [](SplitKind kind) {
    const RankReport report =
        std::move(Train(TpStrategy(), WorkloadOf(kind), {"mesh.dp=2", "mesh.tp=2"})[3]);
    Calls of_step;
    for (const auto& [what, total] : report.traffic.by_kind) {
      EXPECT_EQ(total.calls % report.steps, 0) << what.second;
      of_step[what] = total.calls / report.steps;
    }
    return of_step;
  };
  constexpr Operation kSum = Operation::kAllReduce, kGather = Operation::kAllGather,
                      kScatter = Operation::kReduceScatter;
  constexpr int64_t kWays = 2 * (2 * 2 + 1);
  EXPECT_EQ(calls(SplitKind::kGpt), (Calls{{{kSum, "activations"}, kWays},
                                           {{kSum, "activation gradients"}, kWays},
                                           {{kSum, "cross entropy"}, 2 * 3},
                                           {{kSum, "gradients"}, 1},
                                           {{kSum, "loss"}, 1},
                                           {{kSum, "norm"}, 2}}));
  EXPECT_EQ(calls(SplitKind::kGptSplitSequence), (Calls{{{kGather, "activations"}, kWays},
                                                        {{kScatter, "activations"}, kWays},
                                                        {{kGather, "activation gradients"}, kWays},
                                                        {{kScatter, "activation gradients"}, kWays},
                                                        {{kSum, "replicated gradients"}, 15},
                                                        {{kSum, "cross entropy"}, 2 * 3},
                                                        {{kSum, "gradients"}, 1},
                                                        {{kSum, "loss"}, 1},
                                                        {{kSum, "norm"}, 2}}));
  EXPECT_EQ(calls(SplitKind::kResNet), (Calls{{{kSum, "activations"}, 8},
                                              {{kSum, "activation gradients"}, 8},
                                              {{kSum, "gradients"}, 1},
                                              {{kSum, "statistics"}, 1},
                                              {{kSum, "loss"}, 1},
                                              {{kSum, "norm"}, 2}}));
}

TEST(TpCostTest, MemoryFallsWithTheRanks) {
  const SplitWorkload gpt = {SmallGptConfig(), {"model.heads=8", "model.width=128"}, {}};
  const auto peak = [&](const Assignments& mesh, MemoryClass memory_class) {
    const auto reports = Train(mesh.empty() ? SingleStrategy() : TpStrategy(), gpt, mesh);
    return static_cast<double>(reports[0].memory.peak(memory_class));
  };
  for (const MemoryClass memory_class :
       {MemoryClass::kParameters, MemoryClass::kGradients, MemoryClass::kOptimizerState}) {
    const double whole = peak({}, memory_class);
    for (const int ranks : {2, 4}) {
      // All but positions (16 x 128), norms and biases behind sums is split: of 396 thousand
      // parameters, 4 thousand are not.
      const double expected = 1.0 / ranks + 0.011 * (1 - 1.0 / ranks);
      EXPECT_NEAR(peak({absl::StrCat("mesh.tp=", ranks)}, memory_class) / whole, expected, 0.003)
          << Name(memory_class) << " of " << ranks;
    }
  }
}

// A shard's five samples make micro-batches of 2, 2 and 1.
TEST(TpCostTest, UnevenMicroBatches) {
  for (const SplitKind kind : {SplitKind::kGpt, SplitKind::kGptSplitSequence, SplitKind::kResNet}) {
    const SplitWorkload workload = WorkloadOf(kind);
    const Assignments cut = With(LeavesOf(kind, 3), {"batch.size=10", "cut.micro_batches=3"});
    const auto ddp = Train(DdpStrategy(), workload, With(cut, {"mesh.dp=2"}));
    const auto tp = Train(TpStrategy(), workload, With(cut, {"mesh.dp=2", "mesh.tp=3"}));
    ExpectSameBits(tp, ddp);
    for (const RankReport& report : tp) ExpectPredictedTraffic(report);
  }
}

// --- with other ways to train -------------------------------------------------------------------

TEST(TpMeshTest, WithinDataParallelIsDdp) {
  for (const SplitKind kind :
       {SplitKind::kGpt, SplitKind::kGptSplitSequence, SplitKind::kResNet, SplitKind::kUNet}) {
    const SplitWorkload workload = WorkloadOf(kind);
    const Assignments cut = With(LeavesOf(kind, 2), {"mesh.dp=2", "train.steps=10"});
    const auto ddp = Train(DdpStrategy(), workload, cut);
    const auto tp = Train(TpStrategy(), workload, With(cut, {"mesh.tp=2"}));
    ASSERT_EQ(tp.size(), 4u);
    ExpectSameBits(tp, ddp);
    for (const RankReport& report : tp) ExpectPredictedTraffic(report);
  }
}

TEST(TpMeshTest, OfOneRankIsSingleToTheBit) {
  for (const SplitKind kind :
       {SplitKind::kGptSplitSequence, SplitKind::kResNet, SplitKind::kUNet}) {
    const SplitWorkload workload = WorkloadOf(kind);
    const auto single = Train(SingleStrategy(), workload, {});
    const auto tp = Train(TpStrategy(), workload, {});
    EXPECT_EQ(tp[0].losses, single[0].losses);
    EXPECT_EQ(tp[0].parameter_hash, single[0].parameter_hash);
    const auto ddp = Train(DdpStrategy(), workload, {"mesh.dp=2"});
    EXPECT_EQ(Train(TpStrategy(), workload, {"mesh.dp=2"})[0].parameter_hash,
              ddp[0].parameter_hash);
  }
}

TEST(TpModelTest, BottlenecksAreSplitToo) {
  const SplitWorkload workload = {
      SmallResNetConfig(),
      {"model.depth=50", "model.width=4", "batch.size=4", "cut.features=2"},
      {}};
  const auto single = Train(SingleStrategy(), workload, {});
  const auto tp = Train(TpStrategy(), workload, {"mesh.tp=2"});
  ExpectSameBits(tp, single);
  for (const RankReport& report : tp) ExpectPredictedTraffic(report);
}

TEST(TpModelTest, TheToyModelIsAColumnAndARow) {
  const SplitWorkload workload = {
      absl::StrReplaceAll(SmallResNetConfig(), {{"resnet", "toy"}, {"width = 16", "hidden = 30"}}),
      {"cut.features=3"},
      {}};
  const auto single = Train(SingleStrategy(), workload, {});
  const auto tp = Train(TpStrategy(), workload, {"mesh.tp=3"});
  ExpectSameBits(tp, single);
  for (const RankReport& report : tp) {
    ExpectPredictedTraffic(report);
    EXPECT_EQ(report.traffic.Of(Operation::kAllReduce, "activations").calls, 4);
    EXPECT_EQ(report.traffic.Of("activation gradients").calls, 0) << "images want no gradient";
  }
}

// Saved under one strategy and mesh, resumed with no step to go under another, which saves it its
// own way: the same bits, and a whole file that shows no trace of padding.
TEST(TpCheckpointTest, AnyMeshResumesAnyOther) {
  for (const SplitKind kind :
       {SplitKind::kGptSplitSequence, SplitKind::kResNet, SplitKind::kUNet}) {
    const SplitWorkload workload = WorkloadOf(kind);
    const Assignments all = With(workload.assignments, {"train.steps=2", "checkpoint.every=1"});
    const auto first = RunStrategy(TpStrategy(), MakeModel, workload.config,
                                   With(With(all, workload.options), {"mesh.tp=2"}));
    struct Hop {
      StrategyDefinition strategy;
      Assignments assignments;
    };
    const Hop hops[] = {
        {TpStrategy(), {"mesh.tp=3"}},  {TpStrategy(), {"mesh.tp=3", "checkpoint.files=whole"}},
        {SingleStrategy(), {}},         {TpStrategy(), {"mesh.tp=2", "mesh.dp=2"}},
        {DdpStrategy(), {"mesh.dp=2"}}, {TpStrategy(), {"mesh.tp=4"}}};
    for (const Hop& hop : hops) {
      const auto resumed =
          ResumeStrategy(hop.strategy, MakeModel, workload.config, With(all, hop.assignments));
      EXPECT_EQ(resumed[0].parameter_hash, first[0].parameter_hash)
          << hop.strategy.name << " " << absl::StrJoin(hop.assignments, " ");
    }
  }
}

// --- what is refused ----------------------------------------------------------------------------

TEST(TpRefusalTest, SaysWhatDoesNotDivide) {
  const auto problem = [](const SplitWorkload& workload, const Assignments& assignments) {
    return std::string(FailStrategy(TpStrategy(), MakeModel, workload.config,
                                    With(workload.assignments, assignments))
                           .message());
  };
  const SplitWorkload gpt = WorkloadOf(SplitKind::kGpt), resnet = WorkloadOf(SplitKind::kResNet);
  EXPECT_THAT(problem(gpt, {"mesh.tp=3", "model.heads=4"}),
              AllOf(HasSubstr("mesh.tp is 3"), HasSubstr("blocks.0.attention.qkv"),
                    HasSubstr("4 attention heads")));
  EXPECT_THAT(problem(gpt, {"mesh.tp=5", "model.heads=12"}), HasSubstr("192 output features"));
  EXPECT_THAT(problem(resnet, {"mesh.tp=5"}),
              AllOf(HasSubstr("layer1.0.unit1.conv"), HasSubstr("12 output channels")));
  EXPECT_THAT(problem(resnet, {"mesh.tp=2", "tensor_parallel.sequence_parallel=true"}),
              HasSubstr("no sequence"));
  EXPECT_THAT(problem(gpt, {"mesh.tp=3", "tensor_parallel.sequence_parallel=true"}),
              HasSubstr("cuts each sequence into 6 chunks, which do not divide its 16 tokens"));
  EXPECT_THAT(problem(gpt, {"mesh.tp=4", "tensor_parallel.sequence_parallel=true", "cut.tokens=2"}),
              AllOf(HasSubstr("tokens is 2, but mesh.tp is 4"),
                    HasSubstr("mesh.tp=1 or 2, or cut.tokens=4")));
  EXPECT_THAT(problem(resnet, {"cut.tokens=2"}), HasSubstr("no sequence of tokens to cut"));
  EXPECT_THAT(problem(gpt, {"mesh.tp=2", "tensor_parallel.sequence=true"}),
              HasSubstr("tensor_parallel.sequence_parallel"));
  EXPECT_THAT(problem(gpt, {"mesh.pp=2"}),
              AllOf(HasSubstr("mesh.pp"), HasSubstr("'tp' has mesh.pp = 1")));
}

}  // namespace
}  // namespace lockstep
