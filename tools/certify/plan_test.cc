#include "tools/certify/plan.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

// As a trainer writes it.
constexpr char kListing[] = R"(name = "w"                               # w.toml:1

[cut]
features = 4                             # --set
micro_batches = 2                        # w.toml:24
shards = 2                               # default

[mesh]
cp = 1                                   # default
dp = 2                                   # cut.shards / mesh.replicas
pp = 1                                   # fixed by ddp
replicas = 1                             # default
tp = 1                                   # default
)";

MeshShape Mesh(const std::string& text) { return MeshShape::Parse(text).value(); }

PresetMesh Preset(const std::string& mesh, std::vector<MeshAxis> fixed = {}) {
  return {.preset = "p", .mesh = Mesh(mesh), .fixed_axes = fixed};
}

absl::Status Accept(const MeshShape&) { return absl::OkStatus(); }

std::set<std::string> Meshes(const Plan& plan) {
  std::set<std::string> meshes;
  for (const PlannedMesh& run : plan.runs) meshes.insert(run.mesh.ToString());
  return meshes;
}

// Seven numbers that describe a run.
std::vector<int64_t> Levels(const PlannedMesh& run) {
  return {run.mesh.pp, run.mesh.replicas,           run.mesh.dp, run.mesh.cp, run.mesh.tp,
          run.threads, run.backend == Backend::kMpi};
}

TEST(CertifyPlanTest, ReadsAPresetFromItsListing) {
  const PresetMesh preset = ReadPresetMesh("ddp", kListing).value();
  EXPECT_EQ(preset.mesh, Mesh("dp=2"));
  EXPECT_THAT(preset.fixed_axes, ElementsAre(MeshAxis::kPp));
  EXPECT_TRUE(preset.Fixes(MeshAxis::kPp));
  EXPECT_FALSE(preset.Fixes(MeshAxis::kDp));
}

TEST(CertifyPlanTest, ReadsTheCut) {
  const PresetMesh preset = ReadPresetMesh("ddp", kListing).value();
  EXPECT_THAT(preset.cut, ElementsAre("cut.features=4", "cut.micro_batches=2", "cut.shards=2"));
  EXPECT_EQ(preset.shards, 2);
  EXPECT_EQ(preset.features, 4);
}

TEST(CertifyPlanTest, ARunSaysItsMesh) {
  const PlannedMesh run = {
      .preset = "fsdp", .mesh = Mesh("dp=2,tp=4"), .threads = 3, .backend = Backend::kMpi};
  EXPECT_THAT(run.assignments(), ElementsAre("run.threads=3", "mesh.pp=1", "mesh.replicas=1",
                                             "mesh.dp=2", "mesh.cp=1", "mesh.tp=4", "mesh.ep=1"));
  EXPECT_EQ(run.ToString(), "fsdp.pp=1,dp=2,tp=4.3_threads.mpi");
}

TEST(CertifyPlanTest, DividesExpertsWhereThePresetDoes) {
  const PlanLimits limits = {.shards = 4, .features = 1};
  EXPECT_THAT(Meshes(PlanOf(Preset("dp=4,ep=2"), limits, Accept)),
              IsSupersetOf({"pp=1,dp=4,tp=1,ep=2", "pp=1,dp=4,tp=1"}));
  EXPECT_THAT(Meshes(PlanOf(Preset("dp=4"), limits, Accept)), Each(Not(HasSubstr(",ep="))));
}

TEST(CertifyPlanTest, EveryTwoChoicesThatFitMeetInARun) {
  const PlanLimits limits = {.shards = 4, .features = 4};
  const Plan plan = PlanOf(Preset("pp=2,dp=4"), limits, Accept);
  EXPECT_THAT(plan.left_out, IsEmpty());
  EXPECT_LT(plan.runs.size(), 40u) << "of 144 meshes of each backend and number of threads";
  // All that fits, found by trying.
  for (const int pp : {1, 2, 4}) {
    for (const int replicas : {1, 2, 4}) {
      for (const int dp : {1, 2, 4}) {
        for (const int tp : {1, 2, 4}) {
          const MeshShape mesh = {.pp = pp, .replicas = replicas, .dp = dp, .tp = tp};
          if (mesh.ranks() > 8 || replicas * dp > 4) continue;
          for (const int64_t threads : {1, 3}) {
            for (const Backend backend : {Backend::kThreads, Backend::kMpi}) {
              if (backend == Backend::kMpi && mesh.ranks() == 1) continue;
              const auto levels = Levels({"p", mesh, threads, backend});
              for (size_t i = 0; i < levels.size(); ++i) {
                for (size_t j = 0; j < i; ++j) {
                  EXPECT_TRUE(std::any_of(plan.runs.begin(), plan.runs.end(),
                                          [&](const PlannedMesh& run) {
                                            const auto other = Levels(run);
                                            return other[i] == levels[i] && other[j] == levels[j];
                                          }))
                      << mesh.ToString() << " factors " << i << " and " << j;
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST(CertifyPlanTest, MeshesDivideTheCutAndHaveNotTooManyRanks) {
  const Plan plan = PlanOf(Preset("dp=2"), {.shards = 6, .features = 6, .ranks = 6}, Accept);
  for (const PlannedMesh& run : plan.runs) {
    EXPECT_LE(run.mesh.ranks(), 6);
    EXPECT_EQ(6 % run.mesh.data_ranks(), 0) << run.mesh.ToString();
    EXPECT_THAT((std::vector<int>{1, 3, 6}), Contains(run.mesh.tp));  // 6, 2 and 1 leaves a rank
    EXPECT_FALSE(run.mesh.ranks() == 1 && run.backend == Backend::kMpi);
  }
  EXPECT_THAT(Meshes(plan), Contains("pp=1,dp=1,tp=6"));
}

TEST(CertifyPlanTest, RanksAlongCpHoldNodesOfTheTreeOverTokens) {
  const Plan plan = PlanOf(Preset("dp=2"), {.shards = 2, .tokens = 6, .features = 2}, Accept);
  std::set<int> sizes;
  for (const PlannedMesh& run : plan.runs) sizes.insert(run.mesh.cp);
  EXPECT_THAT(sizes, ElementsAre(1, 3, 6));
}

TEST(CertifyPlanTest, TheDefaultMeshIsThereAndRunsAscend) {
  const Plan plan = PlanOf(Preset("dp=2,tp=2"), {.shards = 2, .features = 2}, Accept);
  EXPECT_THAT(Meshes(plan), Contains("pp=1,dp=2,tp=2"));
  for (size_t i = 1; i < plan.runs.size(); ++i) {
    EXPECT_LE(plan.runs[i - 1].mesh.ranks(), plan.runs[i].mesh.ranks());
  }
  EXPECT_THAT(Meshes(PlanOf(Preset("dp=2,tp=2"), {.shards = 2, .features = 2, .ranks = 2}, Accept)),
              testing::Not(Contains("pp=1,dp=2,tp=2")))
      << "more ranks than asked for";
}

TEST(CertifyPlanTest, FixedAxesStay) {
  const std::vector<MeshAxis> all = {kMeshAxes.begin(), kMeshAxes.end()};
  const Plan single = PlanOf(Preset("dp=1", all), {.shards = 4, .features = 4}, Accept);
  EXPECT_THAT(single.runs, ElementsAre(PlannedMesh{"p", Mesh("dp=1"), 1, Backend::kThreads},
                                       PlannedMesh{"p", Mesh("dp=1"), 3, Backend::kThreads}));
  const Plan ddp = PlanOf(Preset("dp=2", {MeshAxis::kPp}), {.shards = 2}, Accept);
  for (const PlannedMesh& run : ddp.runs) EXPECT_EQ(run.mesh.pp, 1);
}

TEST(CertifyPlanTest, OneRankNeedsThreadsWhateverTheBackends) {
  const PlanLimits limits = {.threads = {2}, .backends = {Backend::kMpi}};
  EXPECT_THAT(PlanOf(Preset("dp=1", {MeshAxis::kPp}), limits, Accept).runs,
              ElementsAre(PlannedMesh{"p", Mesh("dp=1"), 2, Backend::kThreads}));
}

TEST(CertifyPlanTest, WhatIsRefusedIsLeftOutOnceAndOthersTakeItsPlace) {
  std::vector<std::string> asked;
  const Plan plan =
      PlanOf(Preset("pp=2,dp=2"), {.shards = 2, .features = 2}, [&](const MeshShape& mesh) {
        asked.push_back(mesh.ToString());
        if (mesh.pp == 4) return absl::InvalidArgumentError("3 blocks");
        if (mesh == Mesh("pp=2,dp=2")) return absl::InvalidArgumentError("that one");
        return absl::OkStatus();
      });
  std::vector<std::string> unique = asked;
  std::sort(unique.begin(), unique.end());
  EXPECT_EQ(std::unique(unique.begin(), unique.end()), unique.end()) << "asked twice";
  ASSERT_EQ(plan.left_out.size(), 2u);
  int64_t left_out = 0;
  for (const LeftOut& entry : plan.left_out) {
    EXPECT_EQ(entry.preset, "p");
    EXPECT_THAT(entry.reason, testing::AnyOf("3 blocks", "that one"));
    left_out += 1 + entry.others;
  }
  EXPECT_EQ(left_out + static_cast<int64_t>(Meshes(plan).size()),
            static_cast<int64_t>(asked.size()));
  for (const PlannedMesh& run : plan.runs) {
    EXPECT_NE(run.mesh.pp, 4);
    EXPECT_NE(run.mesh, Mesh("pp=2,dp=2"));
  }
  // Its pairs meet elsewhere.
  EXPECT_THAT(Meshes(plan), Contains("pp=2,dp=2,tp=2"));
}

}  // namespace
}  // namespace lockstep
