#include "tools/compare/comparison.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "core/config/legs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

RunRecord MakeRun(const std::string& workload, const std::string& strategy, int64_t shards,
                  const std::vector<LossPoint>& losses = {{0, 2.0}, {1, 1.0}}) {
  RunRecord run;
  run.state = RunRecord::State::kComplete;
  run.workload = workload;
  run.strategy = strategy;
  run.shards = shards;
  run.micro_batches = 1;
  run.losses = losses;
  run.parameter_hash = "aa";
  return run;
}

Config Toml(const std::string& text) { return Config::FromString(text, "test").value(); }

TEST(CompareRunsTest, GroupsByWorkloadInTheGivenOrder) {
  const auto workloads =
      CompareRuns({MakeRun("b", "single", 2), MakeRun("a", "single", 2), MakeRun("b", "ddp", 2)});
  ASSERT_EQ(workloads.size(), 2u);
  EXPECT_EQ(workloads[0].workload, "b");
  ASSERT_EQ(workloads[0].runs.size(), 2u);
  EXPECT_EQ(workloads[0].runs[1].run.strategy, "ddp");
  EXPECT_EQ(workloads[1].workload, "a");
}

TEST(CompareRunsTest, TheReferenceIsSingleWithTheSameShards) {
  const auto runs =
      CompareRuns({MakeRun("a", "ddp", 4, {{0, 2.0}, {1, 1.5}}), MakeRun("a", "single", 2),
                   MakeRun("a", "single", 4), MakeRun("a", "ddp", 8)})[0]
          .runs;
  EXPECT_FALSE(runs[0].is_reference);
  ASSERT_TRUE(runs[0].curve.has_value());
  EXPECT_EQ(runs[0].curve->largest->step, 1);
  EXPECT_DOUBLE_EQ(runs[0].curve->largest->relative, 0.5);
  EXPECT_TRUE(runs[1].is_reference);
  EXPECT_TRUE(runs[2].is_reference);
  EXPECT_FALSE(runs[3].curve.has_value());
}

TEST(CompareRunsTest, DifferencesAreRelativeAndSigned) {
  const auto runs = CompareRuns({MakeRun("a", "single", 2, {{0, 2.0}, {1, -4.0}, {2, 1.0}}),
                                 MakeRun("a", "ddp", 2, {{0, 2.0}, {1, -5.0}})})[0]
                        .runs;
  EXPECT_THAT(runs[1].differences, ElementsAre(LossPoint{0, 0}, LossPoint{1, -0.25}));
}

TEST(CompareRunsTest, RunsOfOtherWorkloadsAreNoReference) {
  const auto workloads = CompareRuns({MakeRun("a", "ddp", 2), MakeRun("b", "single", 2)});
  EXPECT_FALSE(workloads[0].runs[0].curve.has_value());
}

TEST(CompareRunsTest, RunsThatDidNotEndAreNeitherComparedNorReference) {
  RunRecord single = MakeRun("a", "single", 2), ddp = MakeRun("a", "ddp", 2);
  single.state = RunRecord::State::kUnfinished;
  EXPECT_FALSE(CompareRuns({single, ddp})[0].runs[1].curve.has_value());
  single.state = RunRecord::State::kComplete;
  ddp.state = RunRecord::State::kUnfinished;
  EXPECT_FALSE(CompareRuns({single, ddp})[0].runs[1].curve.has_value());
}

TEST(CompareRunsTest, TellsLengthAndParametersApart) {
  RunRecord ddp = MakeRun("a", "ddp", 2, {{0, 2.0}});
  ddp.parameter_hash = "bb";
  const auto runs = CompareRuns({MakeRun("a", "single", 2), ddp})[0].runs;
  EXPECT_FALSE(runs[1].curve->largest.has_value());
  EXPECT_FALSE(runs[1].same_length);
  EXPECT_FALSE(runs[1].same_parameters);
  EXPECT_TRUE(runs[0].same_length);
  EXPECT_TRUE(runs[0].same_parameters);
}

TEST(CompareRunsTest, TellsRunsOfOneStrategyApart) {
  RunRecord first = MakeRun("a", "ddp", 2), second = MakeRun("a", "ddp", 2);
  first.directory = "/runs/one";
  second.directory = "/runs/two";
  first.ranks = second.ranks = 4;
  first.mesh = second.mesh = "pp=1,dp=4,tp=1";
  const auto labels = [&] {
    const auto runs = CompareRuns({MakeRun("a", "single", 2), first, second})[0].runs;
    EXPECT_EQ(runs[0].label, "single");
    return std::pair(runs[1].label, runs[2].label);
  };
  EXPECT_THAT(labels(), Pair("ddp (one)", "ddp (two)"));
  first.directory = "/runs/a/ddp";
  second.directory = "/runs/b/ddp";
  EXPECT_THAT(labels(), Pair("ddp (a/ddp)", "ddp (b/ddp)"));
  second.shards = 4;
  EXPECT_THAT(labels(), Pair("ddp (2 x 1)", "ddp (4 x 1)"));
  second.mesh = "pp=1,dp=2,tp=2";
  EXPECT_THAT(labels(), Pair("ddp (dp=4)", "ddp (dp=2 tp=2)"));
  second.ranks = 1;
  second.mesh = "pp=1,dp=1,tp=1";
  EXPECT_THAT(labels(), Pair("ddp (dp=4)", "ddp (1 rank)"));
  second.state = RunRecord::State::kMissing;  // does not tell its mesh
  EXPECT_THAT(labels(), Pair("ddp (a/ddp)", "ddp (b/ddp)"));
}

TEST(CompareRunsTest, TellsWhatDiffersBeyondTheStrategy) {
  RunRecord single = MakeRun("a", "single", 2), ddp = MakeRun("a", "ddp", 2),
            other = MakeRun("a", "ddp", 2);
  single.config = Toml("train.steps = 9\ncut.shards = 2\nvalidation.every = 3");
  ddp.config =
      Toml("train.steps = 9\nmesh.dp = 2\ndata_parallel.bucket_bytes = 1\nrun.threads = 1");
  other.config = Toml("train.steps = 8\nmesh.dp = 2\nmodel.width = 3");
  const auto runs = CompareRuns({single, ddp, other})[0].runs;
  EXPECT_THAT(runs[1].differences_of_config, IsEmpty());
  EXPECT_THAT(runs[2].differences_of_config,
              ElementsAre(Config::Difference{"model.width", "3", ""},
                          Config::Difference{"train.steps", "8", "9"}));
}

// A run with these legs; its summary has the last one's strategy.
RunRecord MakeRunWithLegs(const std::vector<std::string>& legs) {
  RunRecord run = MakeRun("a", "", 2);
  std::vector<std::string> quoted;
  for (const std::string& leg : legs) {
    run.legs.push_back(Leg::Parse(leg).value());
    quoted.push_back("'" + leg + "'");
  }
  run.strategy = run.legs.back().formation.strategy;
  run.config = Toml("train.legs = [" + absl::StrJoin(quoted, ", ") + "]");
  return run;
}

TEST(LegsTest, AreOfTheRunAndNameIt) {
  RunRecord legs = MakeRunWithLegs({"1: ddp dp=2", "1: fsdp dp=2", "1: tp tp=2"});
  const RunRecord many =
      MakeRunWithLegs({"1: ddp dp=2", "1: fsdp dp=2", "1: single", "1: cp cp=2", "1: tp tp=2"});
  const auto runs =
      CompareRuns({MakeRun("a", "single", 2), MakeRun("a", "tp", 2), legs, many})[0].runs;
  EXPECT_THAT(runs[2].differences_of_config, IsEmpty());
  EXPECT_THAT(runs[2].differences_of_run, SizeIs(1));
  EXPECT_EQ(runs[1].label, "tp");
  EXPECT_EQ(runs[2].label, "3 legs, ddp -> fsdp -> tp");
  EXPECT_EQ(runs[3].label, "5 legs, ddp -> fsdp -> ... -> tp");
}

// Their summary says `single`, though other strategies have trained the first steps.
TEST(LegsTest, ARunThatEndsOnOneRankIsNoReference) {
  RunRecord legs = MakeRunWithLegs({"1: ddp dp=2", "1: single"});
  legs.losses[1].loss = 1.5;
  const auto runs = CompareRuns({legs, MakeRun("a", "single", 2), MakeRun("a", "ddp", 2)})[0].runs;
  EXPECT_FALSE(runs[0].is_reference);
  EXPECT_TRUE(runs[0].parts());
  EXPECT_TRUE(runs[1].is_reference);
  EXPECT_FALSE(runs[2].parts());
  EXPECT_FALSE(CompareRuns({legs})[0].runs[0].curve.has_value());
}

// Their mesh is that of the last leg, and tells nothing.
TEST(LegsTest, RunsWithTheSameStrategiesAreToldApart) {
  RunRecord first = MakeRunWithLegs({"1: ddp dp=2", "1: tp tp=2"}), second = first;
  first.ranks = second.ranks = 4;
  first.mesh = "pp=1,dp=2,tp=2";
  second.mesh = "pp=1,dp=1,tp=4";
  first.directory = "/runs/one";
  second.directory = "/runs/two";
  const auto runs = CompareRuns({first, second})[0].runs;
  EXPECT_EQ(runs[0].label, "2 legs, ddp -> tp (one)");
  EXPECT_EQ(runs[1].label, "2 legs, ddp -> tp (two)");
}

TEST(MeshNameTest, AFormationIsAStrategyAndItsMesh) {
  EXPECT_EQ(ShortFormation("fsdp pp=1,dp=2,tp=2"), "fsdp dp=2 tp=2");
  EXPECT_EQ(ShortFormation("single pp=1,dp=1,tp=1"), "single");
  EXPECT_EQ(ShortFormation(""), "");
}

TEST(MeshNameTest, LeavesOutWhatIsNotDivided) {
  EXPECT_EQ(ShortMesh("pp=1,dp=2,tp=1"), "dp=2");
  EXPECT_EQ(ShortMesh("pp=2,dp=1,tp=11"), "pp=2 tp=11");
  EXPECT_EQ(ShortMesh("pp=1,dp=1,tp=1"), "");
  EXPECT_EQ(ShortMesh(""), "");
}

TEST(MeshNameTest, AKindHasNoSizes) {
  EXPECT_EQ(MeshKind("pp=1,dp=2,tp=4"), "dp x tp");
  EXPECT_EQ(MeshKind("pp=1,dp=8,tp=1"), "dp");
  EXPECT_EQ(MeshKind("pp=1,dp=1,tp=1"), "");
}

}  // namespace
}  // namespace lockstep
