// The short form of //tools/bench:faults.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/bench/faults/fault_runs.h"
#include "tools/bench/faults/mesh_changes.h"
#include "tools/bench/faults/process_kills.h"

namespace lockstep {
namespace {

using ::testing::Ge;
using ::testing::IsEmpty;
using ::testing::SizeIs;

FaultOptions Options(const std::string& name, int count) {
  return {.folder = testing::TempDir() + "/" + name, .count = count, .seed = 22};
}

TEST(FaultsTest, RunsWhoseProcessesAreKilledGoOn) {
  const auto counts = KillProcesses(Options("process_kills", 10)).value();
  EXPECT_THAT(counts.failures, IsEmpty());
  EXPECT_EQ(counts.faults, 10);
  EXPECT_THAT(counts.seconds_to_go_on, SizeIs(Ge(1u)));
}

TEST(FaultsTest, RunsThatChangeTheirMeshHaveTheBitsOfSingle) {
  const auto counts = ChangeMeshes(Options("mesh_changes", 5),
                                   {{.model = FaultModel::kGpt, .steps = 12},
                                    {.model = FaultModel::kResNet, .steps = 7, .is_bf16 = true}})
                          .value();
  EXPECT_THAT(counts.failures, IsEmpty());
  EXPECT_EQ(counts.runs, 2);
}

TEST(FaultsTest, LegsAreOfTheSeedAndAddUpToTheSteps) {
  const FaultWorkload workload = {.steps = 12};
  EXPECT_EQ(RandomLegs(workload, 3, 5), RandomLegs(workload, 3, 5));
  EXPECT_NE(RandomLegs(workload, 3, 5), RandomLegs(workload, 3, 6));
}

}  // namespace
}  // namespace lockstep
