#include "strategies/fsdp/fsdp.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "core/base/file.h"
#include "core/checkpoint/safetensors.h"
#include "core/kernels/optimizers/registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/ddp/ddp.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Cut {
  SmallModel model;
  int shards, micro_batches;
};

void CheckBits(const Cut& cut) {
  const std::string config = SmallConfig(cut.model);
  const std::vector<std::string> batch = {"batch.size=24",
                                          absl::StrCat("cut.micro_batches=", cut.micro_batches)};
  std::vector<std::string> one = batch, many = batch;
  one.push_back(absl::StrCat("cut.shards=", cut.shards));
  many.push_back(absl::StrCat("mesh.dp=", cut.shards));
  const auto single = RunStrategy(SingleStrategy(), MakeModel, config, one);
  const auto fsdp = RunStrategy(FsdpStrategy(), MakeModel, config, many);
  ASSERT_EQ(fsdp.size(), static_cast<size_t>(cut.shards));
  ASSERT_EQ(single[0].losses.size(), 4u);
  ExpectSameBits(fsdp, single);
}

class FsdpEqualsSingleTest : public ::testing::TestWithParam<std::tuple<SmallModel, int, int>> {};

TEST_P(FsdpEqualsSingleTest, ToTheBit) {
  const auto [model, shards, micro_batches] = GetParam();
  CheckBits({model, shards, micro_batches});
}

INSTANTIATE_TEST_SUITE_P(Meshes, FsdpEqualsSingleTest,
                         ::testing::Combine(::testing::Values(SmallModel::kGpt, SmallModel::kResNet,
                                                              SmallModel::kUNet),
                                            ::testing::Values(1, 2, 3, 4), ::testing::Values(1, 2)),
                         [](const auto& parameters) {
                           return absl::StrCat(Name(std::get<0>(parameters.param)), "Shards",
                                               std::get<1>(parameters.param), "MicroBatches",
                                               std::get<2>(parameters.param));
                         });

// Five samples a shard: micro-batches of 2, 2 and 1.
TEST(FsdpTest, UnevenMicroBatchesGiveTheSameBits) {
  const Assignments cut = {"batch.size=10", "cut.micro_batches=3"};
  for (const std::string& config : {SmallGptConfig(), SmallResNetConfig()}) {
    const auto fsdp = RunStrategy(FsdpStrategy(), MakeModel, config, With(cut, {"mesh.dp=2"}));
    ExpectSameBits(fsdp,
                   RunStrategy(SingleStrategy(), MakeModel, config, With(cut, {"cut.shards=2"})));
  }
}

// 34 x 34 and 34 numbers, which neither ranks nor vectors divide, and a tied head.
TEST(FsdpTest, ToTheBitWhereNothingDividesByTheRanks) {
  const auto run = [](const StrategyDefinition& strategy, const char* ranks) {
    return RunStrategy(strategy, MakeModel, SmallGptConfig(), {"model.width=34", ranks});
  };
  ExpectSameBits(run(FsdpStrategy(), "mesh.dp=3"), run(SingleStrategy(), "cut.shards=3"));
}

TEST(FsdpTest, BytesOnTheWireEqualTheTheory) {
  // 16 tokens, width 64, 2 layers, context 16: embeddings, blocks, last norm. All units divide
  // by four without a rest. The head, a use of the first embedding, has a gradient of its own.
  const double head = 16 * 64, parameters = head + 16 * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 2 * 64;
  struct Case {
    const char* reshard;
    double sent;  // of the parameters' bytes, by each of four ranks in a step
  };
  // The gather for forward, that for backward, and the reduction.
  for (const Case& c :
       {Case{"true", 3.0 / 4 + 3.0 / 4 + 3.0 / 4}, Case{"4", 3.0 / 4 + 3.0 / 4 + 3.0 / 4},
        Case{"2", 3.0 / 4 + 1.0 / 2 + 3.0 / 4}, Case{"false", 3.0 / 4 + 3.0 / 4}}) {
    const auto reports = RunStrategy(
        FsdpStrategy(), MakeModel, SmallGptConfig(),
        {"mesh.dp=4", "model.width=64", absl::StrCat("data_parallel.reshard=", c.reshard)});
    for (const RankReport& report : reports) {
      const double sent = report.traffic.Of(Operation::kAllGather, "parameters").wire_bytes +
                          report.traffic.Of(Operation::kReduceScatter, "gradients").wire_bytes;
      // Validation gathers once more, after the last step: it is no part of the steps.
      EXPECT_DOUBLE_EQ(sent / 4, (c.sent * parameters + 3.0 / 4 * head) * 4) << c.reshard;
    }
  }
}

// Four ranks, and how they share the model.
struct ShardingCase {
  std::string name;
  std::vector<std::string> options;
};

class FsdpShardingTest
    : public ::testing::TestWithParam<std::tuple<ShardingCase, SmallModel, int>> {
 protected:
  FsdpShardingTest()
      : sharding_(std::get<0>(GetParam())),
        config_(SmallConfig(std::get<1>(GetParam()))),
        micro_batches_(std::get<2>(GetParam())) {}

  std::vector<RankReport> Run(const StrategyDefinition& strategy,
                              std::vector<std::string> assignments) {
    assignments.insert(assignments.end(),
                       {"batch.size=24", absl::StrCat("cut.micro_batches=", micro_batches_)});
    return RunStrategy(strategy, MakeModel, config_, assignments);
  }

  const ShardingCase sharding_;
  const std::string config_;
  const int micro_batches_;
};

TEST_P(FsdpShardingTest, CurveOfSingleAtThePredictedCost) {
  const auto fsdp = Run(FsdpStrategy(), sharding_.options);
  ExpectSameBits(fsdp, Run(SingleStrategy(), {"cut.shards=4"}));
  ExpectPredictedCosts(fsdp);
}

INSTANTIATE_TEST_SUITE_P(
    FourRanks, FsdpShardingTest,
    ::testing::Combine(
        ::testing::Values(
            ShardingCase{"Resharded", {"mesh.dp=4"}},
            ShardingCase{"ReshardedInPairs", {"mesh.dp=4", "data_parallel.reshard=2"}},
            ShardingCase{"KeptWhole", {"mesh.dp=4", "data_parallel.reshard=false"}},
            ShardingCase{"Replicas", {"mesh.replicas=2", "mesh.dp=2"}},
            ShardingCase{"ReplicasKeptWhole",
                         {"mesh.replicas=2", "mesh.dp=2", "data_parallel.reshard=false"}},
            ShardingCase{"ReplicasOnly", {"mesh.replicas=4"}}),
        ::testing::Values(SmallModel::kGpt, SmallModel::kResNet), ::testing::Values(1, 3)),
    [](const auto& parameters) {
      return absl::StrCat(std::get<0>(parameters.param).name, Name(std::get<1>(parameters.param)),
                          "MicroBatches", std::get<2>(parameters.param));
    });

// Every optimizer with its default options, and SGD with momentum.
std::vector<std::vector<std::string>> Optimizers() {
  std::vector<std::vector<std::string>> all = {{"optimizer.kind=sgd", "optimizer.momentum=0.9"}};
  for (const OptimizerRule& optimizer : AllOptimizers()) {
    all.push_back({absl::StrCat("optimizer.kind=", Name(optimizer))});
  }
  return all;
}

class FsdpOptimizersTest : public ::testing::TestWithParam<std::vector<std::string>> {
 protected:
  // This optimizer and four shards, with an uneven rest in most units.
  std::vector<std::string> With(std::vector<std::string> assignments) {
    assignments.insert(assignments.end(), {"model.width=36", "checkpoint.every=2"});
    assignments.insert(assignments.end(), GetParam().begin(), GetParam().end());
    return assignments;
  }
};

TEST_P(FsdpOptimizersTest, CurveOfSingleAtThePredictedCostAndThroughACheckpoint) {
  const std::string config = SmallGptConfig();
  const auto single = RunStrategy(SingleStrategy(), MakeModel, config, With({"cut.shards=4"}));
  const auto fsdp = RunStrategy(FsdpStrategy(), MakeModel, config, With({"mesh.dp=4"}));
  ExpectSameBits(fsdp, single);
  ExpectPredictedCosts(fsdp);
  RunStrategy(FsdpStrategy(), MakeModel, config, With({"mesh.dp=4", "train.steps=2"}));
  const auto resumed = ResumeStrategy(SingleStrategy(), MakeModel, config, With({"cut.shards=4"}));
  EXPECT_EQ(resumed[0].losses,
            std::vector<double>(single[0].losses.begin() + 2, single[0].losses.end()));
  EXPECT_EQ(resumed[0].parameter_hash, single[0].parameter_hash);
}

INSTANTIATE_TEST_SUITE_P(All, FsdpOptimizersTest, ::testing::ValuesIn(Optimizers()),
                         [](const auto& parameters) {
                           return absl::StrReplaceAll(absl::StrJoin(parameters.param, "_"),
                                                      {{"optimizer.", ""}, {"=", "_"}, {".", "_"}});
                         });

// What does not fit one rank's memory trains when it is cut.
TEST(FsdpTest, TrainsWhatDoesNotFitARank) {
  // 1.2 million parameters: 19 MB of state.
  const std::vector<std::string> assignments = {"mesh.dp=4", "model.width=128", "model.layers=6",
                                                "memory.limit=14000000"};
  const absl::Status ddp = FailStrategy(DdpStrategy(), MakeModel, SmallGptConfig(), assignments);
  EXPECT_TRUE(absl::IsResourceExhausted(ddp)) << ddp;
  const auto fsdp = RunStrategy(FsdpStrategy(), MakeModel, SmallGptConfig(), assignments);
  EXPECT_EQ(fsdp.size(), 4u);
}

// All tensors of a safetensors file: what they are, and their bytes.
std::map<std::string, std::string> TensorsOf(const std::string& path) {
  std::map<std::string, std::string> tensors;
  const auto reader = SafetensorsReader::Open(path);
  EXPECT_TRUE(reader.ok()) << reader.status();
  if (!reader.ok()) return tensors;
  for (const SafetensorsTensor& tensor : reader->tensors()) {
    std::string bytes(static_cast<size_t>(tensor.bytes), 0);
    EXPECT_TRUE(reader->Read(tensor, std::as_writable_bytes(std::span(bytes))).ok());
    tensors[tensor.name] = absl::StrCat(tensor.dtype, absl::StrJoin(tensor.shape, "x"), bytes);
  }
  return tensors;
}

// One rank alone reads what is damaged; all pass the checkpoint over.
TEST(FsdpTest, AllRanksGoBackBehindTheDamageOfOne) {
  const std::string config = SmallGptConfig() + "[checkpoint]\nevery = 1\n";
  const auto whole = RunStrategy(FsdpStrategy(), MakeModel, config, {"mesh.dp=2"});
  RunStrategy(FsdpStrategy(), MakeModel, config, {"mesh.dp=2", "train.steps=3"});
  const std::string newest = RunFolder() + "/checkpoints/step-00000003";
  const std::string shard = newest + "/shard-00002-of-00002.safetensors";
  std::string bytes = *ReadFile(shard);
  bytes[bytes.size() / 2] ^= 4;
  ASSERT_TRUE(WriteFileAtomically(shard, bytes).ok());
  const auto resumed = ResumeStrategy(FsdpStrategy(), MakeModel, config, {"mesh.dp=2"});
  EXPECT_EQ(resumed[0].losses,
            std::vector<double>(whole[0].losses.begin() + 2, whole[0].losses.end()));
  EXPECT_EQ(resumed[0].parameter_hash, whole[0].parameter_hash);
  EXPECT_TRUE(std::filesystem::exists(newest + ".damaged"));
}

// Saved under one strategy and number of ranks, resumed under another: the same losses and bits.
TEST(FsdpTest, AnyStrategyAndMeshResumesAnyOther) {
  const std::string config = SmallGptConfig() + "[checkpoint]\nevery = 1\n";
  const std::vector<std::string> all = {"schedule.kind=cosine", "schedule.total_steps=4",
                                        "cut.micro_batches=1"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> assignments = all;
    assignments.insert(assignments.end(), more.begin(), more.end());
    return assignments;
  };
  const auto checkpoint = [](const std::string& name) {
    return RunFolder() + "/checkpoints/" + name;
  };
  const auto exists = [&](const std::string& name) {
    return std::filesystem::exists(checkpoint(name));
  };
  // The order of sums is that of 4 shards throughout, where micro-batches cannot differ.
  const auto whole = RunStrategy(SingleStrategy(), MakeModel, config, with({"cut.shards=4"}));
  const auto tensors = TensorsOf(checkpoint("step-00000004.safetensors"));
  RunStrategy(DdpStrategy(), MakeModel, config, with({"mesh.dp=4", "train.steps=1"}));
  const auto three =
      ResumeStrategy(FsdpStrategy(), MakeModel, config, with({"mesh.dp=4", "train.steps=3"}));
  EXPECT_TRUE(exists("step-00000003/shard-00004-of-00004.safetensors"));

  // Resumed with no step to go, each loads what the one before has saved, and saves it its own way.
  struct Hop {
    StrategyDefinition strategy;
    std::string ranks;
    std::string file;
  };
  for (const Hop& hop :
       {Hop{FsdpStrategy(), "mesh.dp=3", "step-00000003/shard-00003-of-00003.safetensors"},
        Hop{DdpStrategy(), "mesh.dp=2", "step-00000003.safetensors"},
        Hop{FsdpStrategy(), "mesh.dp=2", "step-00000003/shard-00002-of-00002.safetensors"},
        Hop{SingleStrategy(), "cut.shards=4", "step-00000003.safetensors"}}) {
    const auto resumed =
        ResumeStrategy(hop.strategy, MakeModel, config, with({hop.ranks, "train.steps=3"}));
    EXPECT_EQ(resumed[0].parameter_hash, three[0].parameter_hash) << hop.file;
    EXPECT_TRUE(exists(hop.file)) << hop.file;
    EXPECT_NE(exists("step-00000003"), exists("step-00000003.safetensors"));
  }
  // And back. The last step is right if the optimizer's state has come through as well.
  const auto back = ResumeStrategy(FsdpStrategy(), MakeModel, config,
                                   with({"mesh.dp=4", "checkpoint.files='whole'"}));
  EXPECT_EQ(back[0].losses,
            std::vector<double>(whole[0].losses.begin() + 3, whole[0].losses.end()));
  EXPECT_EQ(back[0].parameter_hash, whole[0].parameter_hash);
  EXPECT_TRUE(TensorsOf(checkpoint("step-00000004.safetensors")) == tensors);

  // Another number of ranks goes on all the same: what is summed in another order stays close.
  RunStrategy(FsdpStrategy(), MakeModel, config, with({"mesh.dp=3", "train.steps=2"}));
  const auto two = ResumeStrategy(FsdpStrategy(), MakeModel, config, with({"mesh.dp=2"}));
  ASSERT_EQ(two[0].losses.size(), 2u);
  EXPECT_NEAR(two[0].losses[1], whole[0].losses[3], 0.1);
}

// Among replicas one saves, and all read: by whatever strategy, and however many replicas there
// are.
TEST(FsdpTest, ReplicasResumeWhatOneOfThemSaved) {
  const std::string config = SmallGptConfig() + "[checkpoint]\nevery = 1\n";
  const auto whole = RunStrategy(SingleStrategy(), MakeModel, config, {"cut.shards=4"});
  RunStrategy(FsdpStrategy(), MakeModel, config, {"mesh.replicas=2", "mesh.dp=2", "train.steps=2"});
  ResumeStrategy(SingleStrategy(), MakeModel, config, {"cut.shards=4", "train.steps=3"});
  const auto resumed =
      ResumeStrategy(FsdpStrategy(), MakeModel, config, {"mesh.replicas=2", "mesh.dp=2"});
  ASSERT_EQ(resumed.size(), 4u);
  for (const RankReport& rank : resumed) {
    EXPECT_EQ(rank.losses, std::vector<double>(whole[0].losses.begin() + 3, whole[0].losses.end()));
    EXPECT_EQ(rank.parameter_hash, whole[0].parameter_hash);
  }
}

// Whatever the number of replicas: those of a power of two of ranks each sum a node of the tree.
TEST(FsdpTest, ThreeReplicasHaveTheBitsOfSingle) {
  for (const std::string& config : {SmallGptConfig(), SmallResNetConfig()}) {
    const auto run = [&](const StrategyDefinition& strategy, const Assignments& more) {
      return RunStrategy(strategy, MakeModel, config, With({"batch.size=12"}, more));
    };
    ExpectSameBits(run(FsdpStrategy(), {"mesh.replicas=3", "mesh.dp=2"}),
                   run(SingleStrategy(), {"cut.shards=6"}));
  }
}

// With one micro-batch a shard there is nothing to add up before the ranks' sum.
TEST(FsdpTest, ReducesEachMicroBatchOnlyWhereAShardHasOne) {
  const Assignments shards = {"mesh.dp=4", "data_parallel.accumulate=shards"};
  ExpectSameBits(RunStrategy(FsdpStrategy(), MakeModel, SmallGptConfig(),
                             With(shards, {"cut.micro_batches=1"})),
                 RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(),
                             {"cut.shards=4", "cut.micro_batches=1"}));
  const absl::Status refused = FailStrategy(FsdpStrategy(), MakeModel, SmallGptConfig(),
                                            With(shards, {"cut.micro_batches=2"}));
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("data_parallel.accumulate is \"shards\""),
                    HasSubstr("cut.micro_batches=1 with more shards")));
}

TEST(FsdpTest, GathersStayWithinAReplica) {
  // Two ranks a replica: half of the parameters for each of three gathers and sums, as among two
  // ranks alone; and, among two replicas, a shard there and back.
  const auto sent = [](const std::vector<std::string>& mesh, Operation operation,
                       const char* label) {
    return RunStrategy(FsdpStrategy(), MakeModel, SmallGptConfig(), mesh)[0]
        .traffic.Of(operation, label)
        .wire_bytes;
  };
  const std::vector<std::string> pair = {"mesh.dp=2"}, hybrid = {"mesh.replicas=2", "mesh.dp=2"};
  for (const auto& [operation, label] : {std::pair(Operation::kAllGather, "parameters"),
                                         std::pair(Operation::kReduceScatter, "gradients")}) {
    EXPECT_GT(sent(hybrid, operation, label), 0);
    EXPECT_EQ(sent(hybrid, operation, label), sent(pair, operation, label)) << label;
  }
  EXPECT_EQ(sent(hybrid, Operation::kAllReduce, "gradients"),
            sent(hybrid, Operation::kReduceScatter, "gradients"));
}

TEST(FsdpTest, UnitsAreGatheredTwiceAStep) {
  const auto reports = RunStrategy(FsdpStrategy(), MakeModel, SmallGptConfig(), {"mesh.dp=2"});
  // Five units (two embeddings, two blocks, the last norm), two gathers each, four steps, and the
  // tokens' embedding is gathered no oftener for being the head too. The head's gradient is one
  // more.
  EXPECT_EQ(reports[0].traffic.Of(Operation::kAllGather, "parameters").calls, 4 * 5 * 2);
  EXPECT_EQ(reports[0].traffic.Of(Operation::kReduceScatter, "gradients").calls, 4 * 6);
}

// The events of a rank with this name, in the order in which they began.
std::vector<TraceEvent> EventsOf(const RankReport& report, const std::string& name) {
  std::vector<TraceEvent> events = report.trace.events;
  std::erase_if(events, [&](const TraceEvent& event) { return event.name != name; });
  std::stable_sort(events.begin(), events.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return a.start_nanos < b.start_nanos;
  });
  return events;
}

int64_t End(const TraceEvent& event) { return event.start_nanos + event.duration_nanos; }

// The trace shows it, by the order of its events: a block is being gathered before the computation
// of the one before it ends, and not before that of the one before that has ended.
TEST(FsdpTest, GathersTheNextBlockWhileOneComputes) {
  const auto reports = RunStrategy(FsdpStrategy(), MakeModel, SmallGptConfig(),
                                   {"mesh.dp=2", "trace.first_step=1", "trace.steps=1"});
  for (const RankReport& report : reports) {
    const std::vector<TraceEvent> gathers = EventsOf(report, "all_gather parameters");
    // What the head's backward begins with is its own unit, and the embedding's, which it is tied
    // to.
    const int64_t tokens = 16 * 32 * 4, positions = 16 * 32 * 4, norm = 2 * 32 * 4;
    const int64_t block = (12 * 32 * 32 + 13 * 32) * 4;
    std::vector<int64_t> bytes;
    for (const TraceEvent& gather : gathers) bytes.push_back(gather.bytes);
    ASSERT_THAT(bytes, ElementsAre(tokens, positions, block, block, norm, tokens, norm, block,
                                   block, positions));
    const auto end_of = [&report](const std::string& name) {
      const std::vector<TraceEvent> computations = EventsOf(report, name);
      EXPECT_EQ(computations.size(), 1u) << name;
      return computations.empty() ? 0 : End(computations[0]);
    };
    EXPECT_LT(gathers[2].start_nanos, end_of("embedding forward"));
    EXPECT_GE(gathers[3].start_nanos, end_of("embedding forward"));
    EXPECT_LT(gathers[3].start_nanos, end_of("blocks.0 forward"));
    EXPECT_GE(gathers[4].start_nanos, end_of("blocks.0 forward"));
    EXPECT_LT(gathers[4].start_nanos, end_of("blocks.1 forward"));
    EXPECT_GE(gathers[5].start_nanos, end_of("head forward"));
    EXPECT_LT(gathers[7].start_nanos, end_of("head backward"));
    EXPECT_GE(gathers[8].start_nanos, end_of("head backward"));
    EXPECT_LT(gathers[8].start_nanos, end_of("blocks.1 backward"));
  }
}

TEST(FsdpTest, RefusesWhatItDoesNotKnow) {
  const auto message = [](const std::string& option) {
    return std::string(
        FailStrategy(FsdpStrategy(), MakeModel, SmallGptConfig(), {"mesh.dp=4", option}).message());
  };
  EXPECT_THAT(message("data_parallel.reshart=true"),
              HasSubstr("did you mean data_parallel.reshard"));
  for (const char* groups : {"3", "8", "99999999999"}) {
    EXPECT_THAT(message(absl::StrCat("data_parallel.reshard=", groups)),
                HasSubstr("mesh.dp, 4, does not divide into groups"))
        << groups;
  }
  for (const char* groups : {"1", "0", "-2"}) {
    EXPECT_THAT(message(absl::StrCat("data_parallel.reshard=", groups)),
                HasSubstr("a group has 2 ranks or more"))
        << groups;
  }
  EXPECT_THAT(message("data_parallel.accumulate=shard"), HasSubstr("did you mean \"shards\""));
  EXPECT_THAT(message("data_parallel.reshard=2.0"),
              HasSubstr("expected true, false or a whole number"));
}

}  // namespace
}  // namespace lockstep
