// The short form of //tools/bench:faults.

#include <iterator>  // std::ssize
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "core/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "strategies/presets.h"
#include "tools/bench/faults/environment_faults.h"
#include "tools/bench/faults/fault_runs.h"
#include "tools/bench/faults/mesh_changes.h"
#include "tools/bench/faults/process_kills.h"
#include "tools/bench/faults/thread_losses.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

FaultOptions Options(const std::string& name, int count) {
  return {.folder = testing::TempDir() + "/" + name, .count = count, .seed = 22};
}

TEST(FaultsTest, RunsWhoseProcessesAreKilledGoOn) {
  const auto counts = KillProcesses(Options("process_kills", 10)).value();
  EXPECT_THAT(counts.failures, IsEmpty());
  EXPECT_EQ(counts.faults, 10);
  EXPECT_THAT(counts.details, Contains(StartsWith("rank amid all_reduce, ")));
  EXPECT_THAT(counts.details, Contains(StartsWith("rank amid a call, of a change of mesh: ")));
  // Eight kills of a run without copies in memory, and two of one with them.
  EXPECT_THAT(counts.details, Contains(StartsWith("went on from disk: ")));
  EXPECT_THAT(counts.details,
              Contains(StartsWith("went on from memory, in runs with copies in memory: ")));
  EXPECT_THAT(counts.seconds_to_go_on, SizeIs(Ge(1u)));
}

TEST(FaultsTest, RunsWhoseThreadsAreLostGoOn) {
  const auto counts = LoseThreads(Options("thread_losses", 11)).value();
  EXPECT_THAT(counts.failures, IsEmpty());
  EXPECT_EQ(counts.faults, 11);
  EXPECT_THAT(counts.details, Contains(StartsWith("amid a collective: ")));
  EXPECT_THAT(counts.seconds_to_go_on, SizeIs(11));
}

TEST(FaultsTest, RunsThatChangeTheirMeshHaveTheBitsOfSingle) {
  const auto counts = ChangeMeshes(Options("mesh_changes", 5),
                                   {{.model = FaultModel::kGpt, .steps = 12},
                                    {.model = FaultModel::kResNet, .steps = 7, .is_bf16 = true}})
                          .value();
  EXPECT_THAT(counts.failures, IsEmpty());
  EXPECT_EQ(counts.runs, 2);
  EXPECT_EQ(counts.faults, 10);
  EXPECT_THAT(
      std::string(ChangeMeshes(Options("too_many", 12), {{.steps = 12}}).status().message()),
      HasSubstr("at most 11 times"));
}

TEST(FaultsTest, FaultsOfTheMachineEndRunsWithOneMessageAndLoseNoCheckpoint) {
  const std::vector<EnvironmentFault> faults = UnprivilegedEnvironmentFaults();
  const auto counts = DisturbEnvironment(Options("environment", 1), faults).value();
  EXPECT_THAT(counts.failures, IsEmpty());
  EXPECT_EQ(counts.faults, std::ssize(faults));
}

// What every run is judged by sees each thing that may be wrong.
TEST(FaultsTest, RunsThatDifferOrLeaveFilesAreSeen) {
  const std::string folder = testing::TempDir() + "/judged", out = folder + "/out";
  const auto put = [](const std::string& path, const std::string& text) {
    ASSERT_EQ(MakeDirectories(path.substr(0, path.rfind('/'))), absl::OkStatus());
    ASSERT_EQ(WriteFileAtomically(path, text), absl::OkStatus());
  };
  for (const std::string& run : {folder + "/undisturbed", out}) {
    put(run + "/losses.csv", "step,loss\n0,2.5\n");
    put(run + "/summary.json", R"({"parameter_hash": "1f"})");
  }
  EXPECT_EQ(DifferenceFromUndisturbed(out, folder), "");
  EXPECT_EQ(LeftoversOf(out), "");
  put(out + "/summary.json", R"({"parameter_hash": "2f"})");
  EXPECT_THAT(DifferenceFromUndisturbed(out, folder), HasSubstr("hash differs"));
  put(out + "/losses.csv", "step,loss\n0,2.6\n");
  EXPECT_THAT(DifferenceFromUndisturbed(out, folder), HasSubstr("losses.csv differs"));
  for (const char* name : {"/checkpoints/step-00000002.tmp/shard", "/summary.json.tmp-1",
                           "/checkpoints/step-00000002.safetensors.damaged", ".1/losses.csv"}) {
    put(out + name, "");
    EXPECT_NE(LeftoversOf(out), "") << name;
    RemoveTree(out + "/checkpoints");
    RemoveTree(out + "/summary.json.tmp-1");
    RemoveTree(out + ".1");
  }
}

TEST(FaultsTest, WhatIsTrainedIsNoMessage) {
  EXPECT_THAT(MessagesOf("faults under ddp, mesh dp=2\n  model  small\n\nrank 0: no room\n"),
              ElementsAre("rank 0: no room"));
}

TEST(FaultsTest, LegsAreOfTheSeedAndAddUpToTheSteps) {
  const FaultWorkload workload = {.steps = 12};
  EXPECT_EQ(RandomLegs(workload, 3, 5), RandomLegs(workload, 3, 5));
  EXPECT_NE(RandomLegs(workload, 3, 5), RandomLegs(workload, 3, 6));
}

// The presets that legs name, in any order and with repetitions.
std::set<std::string> PresetsOf(const std::string& legs) {
  std::set<std::string> presets;
  for (const auto leg : absl::StrSplit(legs, "; ")) {
    const std::vector<std::string> words = absl::StrSplit(leg, ' ');
    presets.insert(words.at(1));
  }
  return presets;
}

TEST(FaultsTest, EachRunThatChangesItsMeshVisitsAllPresets) {
  std::set<std::string> all;
  for (const StrategyDefinition& strategy : LegStrategies()) all.insert(strategy.name);
  all.erase("lora");  // trains other parameters
  for (const FaultWorkload& workload : MeshChangeWorkloads()) {
    std::set<std::string> expected = all;
    if (workload.model != FaultModel::kExperts) expected.erase("ep");
    if (workload.model == FaultModel::kResNet) expected.erase("cp");
    for (const uint64_t seed : {1, 2, 3}) {
      EXPECT_EQ(PresetsOf(RandomLegs(workload, MeshChangesKind().usual_count, seed)), expected);
    }
  }
}

}  // namespace
}  // namespace lockstep
