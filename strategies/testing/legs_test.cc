// Runs whose strategy and mesh change: the losses and the parameters of `single`.

#include <algorithm>
#include <array>
#include <cstdint>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/file.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/config/command_line.h"
#include "core/probe/probed_run.h"
#include "core/run/leg/training_run.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/mesh/mesh.h"
#include "strategies/presets.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;

// A cut that all of the meshes below divide.
const Assignments kCut = {"batch.size=16", "cut.shards=4", "cut.micro_batches=2"};

std::string LegsAssignment(const std::vector<std::string>& legs) {
  return absl::StrCat("train.legs=[\"", absl::StrJoin(legs, "\", \""), "\"]");
}

struct Workload {
  std::string name;
  SmallModel model;
  Assignments assignments;
  bool has_tokens = true;
};
void PrintTo(const Workload& workload, std::ostream* out) { *out << workload.name; }

std::vector<Workload> Workloads() {
  const Assignments gpt = {"model.heads=4", "cut.tokens=2", "cut.features=2"};
  const Assignments resnet = {"model.width=8", "cut.features=2"};
  return {
      {"GptFp32", SmallModel::kGpt, gpt},
      {"GptBf16", SmallModel::kGpt, With(gpt, {"precision.compute=bf16"})},
      {"GptFp16", SmallModel::kGpt, With(gpt, {"precision.compute=fp16"})},
      {"GptAdapters", SmallModel::kGpt, With(gpt, {R"(lora.layers=["*"])", "lora.rank=2"})},
      {"Experts",
       SmallModel::kLlama,
       {"model.heads=4", "model.key_heads=2", "cut.tokens=2", "cut.features=2",
        "model.experts.count=4", "model.experts.scores=sigmoid", "model.experts.bias_rate=0.02"}},
      {"ResNetFp32", SmallModel::kResNet, resnet, false},
      {"ResNetBf16", SmallModel::kResNet, With(resnet, {"precision.compute=bf16"}), false}};
}

// Every preset, some of them on several meshes; by their numbers.
std::vector<std::string> Formations(const Workload& workload) {
  std::vector<std::string> formations = {"single",
                                         "naive_ddp dp=2",
                                         "ddp dp=4",
                                         "zero1 dp=4",
                                         "zero2 dp=2",
                                         "fsdp dp=2 replicas=2",
                                         "layerwise pp=2",
                                         "gpipe pp=2 dp=2",
                                         "fsdp_pipe pp=2 dp=2",
                                         "tp tp=2 dp=2",
                                         "mesh pp=2 tp=2 dp=2 data_parallel.shard=optimizer",
                                         "mesh dp=2 tp=2 data_parallel.shard=parameters"};
  if (workload.has_tokens) formations.push_back("cp cp=2 dp=2");
  if (workload.name == "Experts") {
    formations.push_back("ep dp=2 ep=2");
    formations.push_back("ep dp=2 cp=2 ep=4");
  }
  if (workload.name == "GptAdapters") formations.push_back("lora dp=2");
  return formations;
}

// A leg of one or two steps for each formation, in an order that the seed decides.
std::vector<std::string> RandomLegs(const Workload& workload, uint64_t seed, int64_t& steps) {
  std::mt19937_64 random(seed);
  std::vector<std::string> formations = Formations(workload);
  std::shuffle(formations.begin(), formations.end(), random);
  std::vector<std::string> legs;
  for (const std::string& formation : formations) {
    const int64_t here = 1 + static_cast<int64_t>(random() % 2);
    legs.push_back(absl::StrCat(here, ": ", formation));
    steps += here;
  }
  return legs;
}

std::string Losses() { return ReadFile(RunFolder() + "/losses.csv").value_or("none"); }

// A run with legs, as the program of `mesh` has it.
std::vector<RankReport> RunLegs(const std::string& config, const Assignments& assignments) {
  return RunStrategy(MeshStrategy(), MakeModel, config, assignments, nullptr, LegStrategies());
}

class LegsTest : public testing::TestWithParam<Workload> {};

TEST_P(LegsTest, ChangesOverAllPresetsHaveTheBitsOfSingle) {
  const Workload& workload = GetParam();
  int64_t steps = 0;
  const std::vector<std::string> legs = RandomLegs(workload, /*seed=*/22, steps);
  SCOPED_TRACE(absl::StrJoin(legs, "; "));
  const Assignments common =
      With(With(kCut, workload.assignments),
           {absl::StrCat("train.steps=", steps), "validation.every=5", "hashes.every=1"});
  const std::string config = SmallConfig(workload.model);
  const std::vector<RankReport> single = RunStrategy(SingleStrategy(), MakeModel, config, common);
  const std::string losses = Losses(), hashes = ReadFile(RunFolder() + "/hashes.csv").value();
  const std::vector<RankReport> ranks = RunLegs(config, With(common, {LegsAssignment(legs)}));
  EXPECT_EQ(Losses(), losses);
  EXPECT_EQ(ReadFile(RunFolder() + "/hashes.csv").value(), hashes);
  EXPECT_EQ(ranks[0].parameter_hash, single[0].parameter_hash);
  EXPECT_EQ(ranks[0].validation.loss, single[0].validation.loss);
  EXPECT_EQ(ranks[0].losses, single[0].losses);
  ASSERT_EQ(ranks[0].changes.size(), legs.size() - 1);
  for (const MeshChange& change : ranks[0].changes) {
    EXPECT_EQ(change.sent_bytes, change.planned_bytes) << change.from << " -> " << change.to;
  }
  ExpectPredictedCosts(ranks);
}

// Devices are those of the largest mesh: where ranks have a GPU each, a leg of one rank before it,
// or of few, would else decide which.
TEST(LegsTest, LegsShareTheirDevices) {
  const std::string config = testing::TempDir() + "/devices.toml";
  ASSERT_TRUE(WriteFileAtomically(config, SmallGptConfig()).ok());
  CommandLine line;
  line.configs = {config};
  line.out = testing::TempDir() + "/devices";
  line.assignments = With(kCut, {LegsAssignment({"1: single", "1: ddp dp=4", "1: ddp dp=2"})});
  const auto run = PrepareRun(line, MeshStrategy(), MakeModel, {}, LegStrategies());
  ASSERT_TRUE(run.ok()) << run.status();
  int legs = 0;
  for (const TrainingRun* leg = &*run; leg != nullptr; leg = leg->next.get(), ++legs) {
    EXPECT_EQ(leg->devices, run->devices);
  }
  EXPECT_EQ(legs, 3);
}

INSTANTIATE_TEST_SUITE_P(Workloads, LegsTest, testing::ValuesIn(Workloads()),
                         [](const auto& test) { return test.param.name; });

TEST(LegsTest, BytesOfAChangeAreThoseThatRanksLack) {
  // Two tensors of AdamW's state beside each parameter, all in fp32.
  const Assignments common = With(kCut, {"train.steps=4", "cut.features=2"});
  const auto moved = [&](const std::vector<std::string>& legs) {
    const auto ranks = RunLegs(SmallGptConfig(), With(common, {LegsAssignment(legs)}));
    return ranks[0].changes.empty() ? -1 : ranks[0].changes[0].sent_bytes;
  };
  const auto run = RunLegs(SmallGptConfig(), With(common, {"train.legs=[\"1: single\"]"}));
  const int64_t parameters = run[0].memory.live(MemoryClass::kOptimizerState) / 2;
  const int64_t one = moved({"2: single", "2: ddp dp=2"});
  EXPECT_GT(one, 0);
  EXPECT_LE(one, 3 * parameters);
  EXPECT_GT(one, 3 * parameters * 9 / 10);  // without what the allocator rounds up
  EXPECT_EQ(moved({"2: single", "2: ddp dp=4"}), 3 * one);
  EXPECT_EQ(moved({"2: ddp dp=4", "2: single"}), 0);
  EXPECT_EQ(moved({"2: ddp dp=4", "2: fsdp dp=4"}), 0);
  EXPECT_EQ(moved({"2: fsdp dp=2", "2: ddp dp=2"}), one);
}

TEST(LegsTest, ResumesInTheMiddleOfALegAndAfterAChange) {
  const Assignments common = With(kCut, {"cut.features=2", "checkpoint.every=1"});
  const std::string legs = LegsAssignment({"2: ddp dp=4", "2: fsdp dp=2 tp=2", "2: gpipe pp=2"});
  RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), With(common, {"train.steps=6"}));
  const std::string losses = Losses();
  for (int64_t stop = 1; stop < 6; ++stop) {
    SCOPED_TRACE(stop);
    RunLegs(SmallGptConfig(),
            With(common, {legs, absl::StrCat("train.steps=", stop), "schedule.total_steps=6"}));
    const auto ranks = ResumeStrategy(
        MeshStrategy(), MakeModel, SmallGptConfig(),
        With(common, {legs, "train.steps=6", "schedule.total_steps=6"}), LegStrategies());
    EXPECT_EQ(Losses(), losses);
    EXPECT_EQ(ranks[0].changes.size(), stop < 2 ? 2u : stop < 4 ? 1u : 0u);
  }
}

TEST(LegsTest, TheConfigurationThatIsLeftGivesTheSameRun) {
  const Assignments common = With(kCut, {"cut.features=2", "train.steps=6", "checkpoint.every=1"});
  const std::string legs = LegsAssignment({"2: ddp dp=4", "2: fsdp dp=2 tp=2", "2: gpipe pp=2"});
  const auto before = RunLegs(SmallGptConfig(), With(common, {legs}));
  const std::string losses = Losses();
  const std::string config = ReadFile(RunFolder() + "/config.toml").value();
  const auto ranks = RunLegs(config, {});
  EXPECT_EQ(Losses(), losses);
  EXPECT_EQ(ranks[0].parameter_hash, before[0].parameter_hash);
  EXPECT_EQ(ReadFile(RunFolder() + "/config.toml").value(), config);
  ASSERT_EQ(ranks[0].changes.size(), 2u);
}

// Earlier versions wrote the first leg's configuration, with its mesh.
TEST(LegsTest, ResumesWhereAnEarlierVersionHasWrittenTheConfiguration) {
  const Assignments common = With(kCut, {"cut.features=2", "schedule.total_steps=6",
                                         LegsAssignment({"2: ddp dp=4", "4: fsdp dp=2 tp=2"})});
  RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(),
              With(kCut, {"cut.features=2", "train.steps=6"}));
  const std::string losses = Losses();
  RunLegs(SmallGptConfig(), With(common, {"train.steps=3"}));
  const std::string path = RunFolder() + "/config.toml";
  const std::string config = ReadFile(path).value();
  ASSERT_TRUE(WriteFileAtomically(path, config + "\n[data_parallel]\nshard = \"none\"\n").ok());
  ResumeStrategy(MeshStrategy(), MakeModel, SmallGptConfig(), With(common, {"train.steps=6"}),
                 LegStrategies());
  EXPECT_EQ(Losses(), losses);
  EXPECT_EQ(ReadFile(path).value().find("data_parallel"), std::string::npos);
}

TEST(LegsTest, GoesOnInTheLegOfTheCheckpointThatIsSound) {
  const Assignments common =
      With(kCut, {"cut.features=2", "checkpoint.every=1", "schedule.total_steps=6",
                  LegsAssignment({"2: ddp dp=4", "2: fsdp dp=2 tp=2", "2: gpipe pp=2"})});
  RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(),
              With(kCut, {"cut.features=2", "train.steps=6"}));
  const std::string losses = Losses();
  RunLegs(SmallGptConfig(), With(common, {"train.steps=4"}));
  const auto saved = ListCheckpoints(RunFolder() + "/checkpoints").value();
  ASSERT_EQ(saved.back().step, 4);
  ASSERT_EQ(WriteFileAtomically(ListShards(saved.back().path).value()[0], "damaged"),
            absl::OkStatus());
  const auto ranks = ResumeStrategy(MeshStrategy(), MakeModel, SmallGptConfig(),
                                    With(common, {"train.steps=6"}), LegStrategies());
  ASSERT_EQ(ranks[0].changes.size(), 1u);  // the run goes on behind 3 steps, with fsdp
  EXPECT_EQ(ranks[0].changes[0].steps, 4);
  EXPECT_EQ(Losses(), losses);
}

// The trace is of step 2, in the first leg.
TEST(LegsTest, RanksThatTheLastLegLeavesIdleKeepTheirTraces) {
  const std::vector<RankReport> ranks =
      RunLegs(SmallGptConfig(), With(kCut, {"train.steps=5", "trace.first_step=2", "trace.steps=1",
                                            LegsAssignment({"3: ddp dp=4", "2: gpipe pp=2"})}));
  ASSERT_EQ(ranks.size(), 2u);
  std::vector<const TraceRecord*> traces = {&ranks[0].trace, &ranks[1].trace};
  for (const TraceRecord& trace : ranks[0].idle_traces) traces.push_back(&trace);
  ASSERT_EQ(traces.size(), 4u);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(traces[rank]->rank, rank);
    EXPECT_THAT(traces[rank]->events, Contains(Field(&TraceEvent::name, "step 2")));
  }
}

TEST(LegsTest, ProbesOverAChangeAreThoseOfSingle) {
  const Assignments common =
      With(kCut, {"cut.features=2", "train.steps=4", "probe.first_step=1", "probe.steps=2"});
  const auto probes = [] {
    absl::StatusOr<ProbedRun> run = ReadProbedRun(RunFolder());
    EXPECT_TRUE(run.ok()) << run.status();
    return run.ok() ? *std::move(run) : ProbedRun();
  };
  RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(), common);
  const ProbedRun single = probes();
  RunLegs(SmallGptConfig(), With(common, {LegsAssignment({"2: ddp dp=4", "2: gpipe pp=2"})}));
  const ProbedRun legs = probes();
  EXPECT_EQ(legs.Programs(), "lockstep ddp, 4 ranks; lockstep gpipe, 2 ranks");
  for (const ProbedWhole& tensor : single.tensors) {
    SCOPED_TRACE(tensor.key.ToString());
    const ProbedWhole* const found = legs.Find(tensor.key);
    ASSERT_NE(found, nullptr);
    EXPECT_TRUE(found->is_complete());
    EXPECT_EQ(found->digest.hash, tensor.digest.hash);
  }
  EXPECT_FALSE(single.tensors.empty());
}

// With this factor every loss jumps that is compared at all, and the fifth is the first.
TEST(LegsTest, RanksThatWereIdleKnowTheLossesBefore) {
  const absl::Status status =
      FailStrategy(MeshStrategy(), MakeModel, SmallGptConfig(),
                   With(kCut, {"train.steps=8", "cut.features=2", "guard.loss_jump=0.5",
                               LegsAssignment({"3: ddp dp=2", "5: ddp dp=4"})}),
                   nullptr, LegStrategies());
  EXPECT_THAT(std::string(status.message()), HasSubstr("step 5: the loss jumps to "));
}

TEST(LegsTest, WhatCannotBeTrainedIsRefusedWithItsLeg) {
  const auto message = [](const std::vector<std::string>& legs, const Assignments& more) {
    return std::string(FailStrategy(MeshStrategy(), MakeModel, SmallGptConfig(),
                                    With(more, {LegsAssignment(legs)}), nullptr, LegStrategies())
                           .message());
  };
  EXPECT_THAT(message({"1: ddp dp=2", "1: nddp"}, kCut),
              HasSubstr("train.legs, leg 2: there is no strategy 'nddp'; use one of single, "));
  EXPECT_THAT(message({"1: ddp dp=2", "1: ddp dp=3"}, kCut), HasSubstr("train.legs, leg 2: "));
  EXPECT_THAT(message({"1: ddp dp=2", "1: ddp pp=2"}, kCut),
              HasSubstr("the strategy 'ddp' has mesh.pp = 1"));
  EXPECT_THAT(message({"1: single", "1: ddp dp=2"}, {}),
              HasSubstr("leg 2: cut.shards would be 2, as its mesh says, but is 1"));
  EXPECT_THAT(message({"ddp dp=2"}, kCut), HasSubstr("train.legs: 'ddp dp=2' does not begin"));
}

}  // namespace
}  // namespace lockstep
