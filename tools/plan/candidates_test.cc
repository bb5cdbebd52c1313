#include "tools/plan/candidates.h"

#include <algorithm>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

std::vector<std::string> NamesOf(const std::vector<Candidate>& candidates) {
  std::vector<std::string> names;
  for (const Candidate& candidate : candidates) names.push_back(candidate.ToString());
  return names;
}

CandidateLimits SixteenRanks() {
  CandidateLimits limits;
  limits.ranks = 16;
  limits.batch = 64;
  limits.blocks = 10;
  limits.tensor_parallel = {1, 2, 4, 8};
  limits.sequence_parallel = {2, 4, 8};
  limits.has_selective = true;
  return limits;
}

TEST(CandidatesTest, FirstOnesAreAllMeshesThatFit) {
  std::set<std::string> meshes, names;
  for (const Candidate& candidate : FirstCandidates(SixteenRanks())) {
    EXPECT_EQ(candidate.mesh.ranks(), 16);
    EXPECT_EQ(64 / candidate.mesh.dp % candidate.micro_batch, 0);
    EXPECT_EQ(candidate.sequence_parallel, candidate.mesh.tp > 1);
    EXPECT_EQ(candidate.shard, candidate.mesh.dp > 1 ? "optimizer" : "none");
    meshes.insert(candidate.mesh.ToString());
    EXPECT_TRUE(names.insert(candidate.ToString()).second) << candidate.ToString();
  }
  // pp 1 to 16 beside tp 1 (the engine refuses 16 of 10 blocks, and says so), and what is left
  // beside tp 2, 4 and 8.
  EXPECT_EQ(meshes.size(), 5u + 4 + 3 + 2);
  EXPECT_THAT(meshes, IsSupersetOf({"pp=1,dp=16,tp=1", "pp=8,dp=1,tp=2", "pp=2,dp=1,tp=8"}));
}

TEST(CandidatesTest, WhatTheModelRefusesStandsThereOnce) {
  CandidateLimits limits = SixteenRanks();
  limits.tensor_parallel = {1};
  limits.sequence_parallel = {};
  limits.refused_tensor_parallel = {2, 4, 32};
  limits.batch = 24;  // not for 16 data-parallel ranks
  std::vector<std::string> names;
  for (const Candidate& candidate : FirstCandidates(limits)) names.push_back(candidate.ToString());
  EXPECT_THAT(names, IsSupersetOf({"pp=1,dp=16,tp=1,b=1 zero1", "pp=16,dp=1,tp=1,b=1 1f1b",
                                   "pp=1,dp=8,tp=2,b=1 zero1", "pp=1,dp=4,tp=4,b=1 zero1"}));
  EXPECT_EQ(std::count_if(names.begin(), names.end(),
                          [](const std::string& name) {
                            return name.find("dp=16") != std::string::npos ||
                                   name.find("tp=2") != std::string::npos ||
                                   name.find("tp=32") != std::string::npos;
                          }),
            2);
}

TEST(CandidatesTest, DividesWithinNodesToo) {
  CandidateLimits limits = SixteenRanks();
  limits.ranks_per_node = 8;
  Candidate candidate;
  candidate.mesh.dp = 8;
  candidate.mesh.tp = 2;
  candidate.shard = "parameters";
  EXPECT_THAT(NamesOf(Variants(candidate, limits)), Contains("pp=1,replicas=2,dp=4,tp=2,b=1 fsdp"));
}

TEST(CandidatesTest, KeysSayWhatTheNameSays) {
  Candidate candidate;
  candidate.mesh = {.pp = 4, .replicas = 1, .dp = 2, .tp = 2};
  candidate.micro_batch = 2;
  candidate.schedule = "interleaved_1f1b";
  candidate.stages_per_rank = 3;
  candidate.shard = "gradients";
  candidate.recompute = "full";
  candidate.sequence_parallel = true;
  EXPECT_EQ(candidate.ToString(), "pp=4,dp=2,tp=2,b=2 interleaved_1f1b x3, zero2, sp, full");
  EXPECT_THAT(
      candidate.Assignments(64),
      IsSupersetOf({"mesh.pp=4", "mesh.dp=2", "mesh.tp=2", "cut.shards=2", "cut.micro_batches=16",
                    "cut.features=2", "cut.tokens=2", "tensor_parallel.sequence_parallel=true",
                    "data_parallel.shard=gradients", "recompute.granularity=full",
                    "pipeline.schedule=interleaved_1f1b", "pipeline.stages_per_rank=3"}));
}

TEST(CandidatesTest, SequencesAreDividedWhereTheMeshSaysSo) {
  CandidateLimits limits = SixteenRanks();
  const Candidate candidate = UsualCandidate({.dp = 1, .cp = 2, .tp = 8}, limits);
  EXPECT_EQ(candidate.shard, "optimizer");
  EXPECT_THAT(candidate.Assignments(64),
              IsSupersetOf({"mesh.cp=2", "cut.shards=1", "cut.tokens=16"}));
}

TEST(CandidatesTest, SequencesAreDividedWhereSamplesAreFew) {
  CandidateLimits limits = SixteenRanks();
  limits.batch = 4;
  limits.context_parallel = {1, 2, 4, 8};
  EXPECT_THAT(NamesOf(FirstCandidates(limits)), Contains("pp=1,dp=4,cp=4,tp=1,b=1 zero1"));
}

TEST(CandidatesTest, LastOfAllSmallerOnesDivideSequences) {
  CandidateLimits limits = SixteenRanks();
  limits.context_parallel = {1, 2, 4};
  Candidate candidate;
  candidate.mesh = {.dp = 8, .cp = 2};
  candidate.shard = "parameters";
  const std::vector<Candidate> smaller = SmallerCandidates(candidate, limits);
  ASSERT_EQ(smaller.size(), 2u + 3);
  EXPECT_EQ(smaller[1].mesh, candidate.mesh);
  EXPECT_EQ(smaller.back().mesh, (MeshShape{.dp = 4, .cp = 4}));
  EXPECT_EQ(smaller.back().recompute, "full");
}

TEST(CandidatesTest, ExpertsAndSequencesAreDividedTooWhereTheModelHasThem) {
  CandidateLimits limits = SixteenRanks();
  limits.context_parallel = {1, 2};
  limits.expert_parallel = {1, 2, 4, 8};
  limits.ranks_per_node = 2;
  Candidate candidate;
  candidate.mesh = {.dp = 4, .ep = 4};
  candidate.shard = "parameters";
  EXPECT_THAT(candidate.Assignments(64), Contains("mesh.ep=4"));
  const std::vector<std::string> names = NamesOf(Variants(candidate, limits));
  EXPECT_THAT(names, IsSupersetOf({"pp=1,dp=4,tp=1,b=1 fsdp", "pp=1,dp=4,tp=1,ep=2,b=1 fsdp",
                                   "pp=1,dp=2,cp=2,tp=1,ep=4,b=1 fsdp",
                                   "pp=1,replicas=2,dp=2,tp=1,ep=2,b=1 fsdp"}));
  EXPECT_THAT(names, Not(Contains("pp=1,dp=4,tp=1,ep=8,b=1 fsdp")));
}

TEST(CandidatesTest, SmallerOnesRecomputeBeforeTheyDivide) {
  Candidate candidate;
  candidate.mesh.dp = 16;
  candidate.shard = "optimizer";
  const std::vector<Candidate> smaller = SmallerCandidates(candidate, SixteenRanks());
  ASSERT_EQ(smaller.size(), 2u + 3 + 3);
  EXPECT_EQ(smaller[0].recompute, "selective");
  EXPECT_EQ(smaller[0].shard, "optimizer");
  EXPECT_EQ(smaller.back().recompute, "full");
  EXPECT_EQ(smaller.back().shard, "parameters");
  candidate.mesh.dp = 1;
  candidate.mesh.pp = 8;
  candidate.shard = "none";
  EXPECT_EQ(SmallerCandidates(candidate, SixteenRanks()).size(), 2u);
}

TEST(CandidatesTest, VariantsDifferInOneOption) {
  Candidate candidate;
  candidate.mesh = {.pp = 2, .replicas = 1, .dp = 4, .tp = 2};
  candidate.shard = "optimizer";
  candidate.sequence_parallel = true;
  const std::vector<Candidate> variants = Variants(candidate, SixteenRanks());
  std::set<std::string> names;
  for (const Candidate& variant : variants) {
    const int changes = (variant.schedule != candidate.schedule) +
                        (variant.shard != candidate.shard) +
                        (variant.recompute != candidate.recompute) +
                        (variant.sequence_parallel != candidate.sequence_parallel);
    EXPECT_EQ(changes, 1) << variant.ToString();
    EXPECT_EQ(variant.mesh, candidate.mesh);
    EXPECT_TRUE(names.insert(variant.ToString()).second);
  }
  EXPECT_THAT(names,
              IsSupersetOf({"pp=2,dp=4,tp=2,b=1 zb_h1, zero1, sp",
                            "pp=2,dp=4,tp=2,b=1 interleaved_1f1b x4, zero1, sp",
                            "pp=2,dp=4,tp=2,b=1 dualpipe_v x2, zero1, sp",
                            "pp=2,dp=4,tp=2,b=1 1f1b, fsdp, sp", "pp=2,dp=4,tp=2,b=1 1f1b, zero1",
                            "pp=2,dp=4,tp=2,b=1 1f1b, zero1, sp, selective"}));
  // Ten blocks are too few for six stages on each of two ranks.
  EXPECT_THAT(names, testing::Not(Contains("pp=2,dp=4,tp=2,b=1 interleaved_1f1b x6, zero1, sp")));
}

TEST(CandidatesTest, ReplicasGoAsFarAsDevicesAndSamplesDo) {
  CandidateLimits limits = SixteenRanks();
  Candidate candidate = UsualCandidate({.pp = 2, .dp = 4, .tp = 2}, limits);
  candidate.micro_batch = 4;
  EXPECT_THAT(
      NamesOf(WithOtherReplicas(candidate, limits, /*devices=*/32)),
      ElementsAre("pp=2,dp=1,tp=2,b=4 1f1b, sp", "pp=2,dp=2,tp=2,b=4 1f1b, zero1, sp",
                  "pp=2,dp=4,tp=2,b=4 1f1b, zero1, sp", "pp=2,dp=8,tp=2,b=4 1f1b, zero1, sp"));
  const std::vector<std::string> all = NamesOf(WithOtherReplicas(candidate, limits, 1024));
  EXPECT_EQ(all.back(), "pp=2,dp=16,tp=2,b=4 1f1b, zero1, sp");  // 64 samples
  // From a rank that divides nothing, and with experts that ranks along cp divide too.
  EXPECT_THAT(NamesOf(WithOtherReplicas(UsualCandidate({.tp = 8}, limits), limits, 16)),
              ElementsAre("pp=1,dp=1,tp=8,b=1 sp", "pp=1,dp=2,tp=8,b=1 zero1, sp"));
  EXPECT_THAT(
      NamesOf(WithOtherReplicas(UsualCandidate({.dp = 1, .cp = 2, .ep = 2}, limits), limits, 4)),
      ElementsAre("pp=1,dp=1,cp=2,tp=1,ep=2,b=1 zero1", "pp=1,dp=2,cp=2,tp=1,ep=2,b=1 zero1"));
}

TEST(CandidatesTest, AllHaveWhatIsFixedWhereTheMeshHasAUseForIt) {
  CandidateLimits limits = SixteenRanks();
  limits.context_parallel = {1, 2};
  limits.fixed = {
      .schedule = "zb_v", .shard = "none", .recompute = "full", .sequence_parallel = false};
  std::vector<Candidate> all = FirstCandidates(limits);
  for (const Candidate& first : FirstCandidates(limits)) {
    for (const auto& more : {SmallerCandidates(first, limits), Variants(first, limits)}) {
      all.insert(all.end(), more.begin(), more.end());
      EXPECT_THAT(more, Not(Contains(first)));
      const std::vector<std::string> names = NamesOf(more);
      EXPECT_EQ(std::set(names.begin(), names.end()).size(), names.size());
    }
  }
  for (const Candidate& candidate : all) {
    SCOPED_TRACE(candidate.ToString());
    EXPECT_EQ(candidate.schedule, candidate.mesh.pp > 1 ? "zb_v" : "1f1b");
    EXPECT_EQ(candidate.stages_per_rank, candidate.mesh.pp > 1 ? 2 : 1);
    EXPECT_EQ(candidate.shard, "none");
    EXPECT_EQ(candidate.recompute, "full");
    EXPECT_FALSE(candidate.sequence_parallel);
  }
  // What is not fixed differs still.
  EXPECT_THAT(NamesOf(all),
              IsSupersetOf({"pp=4,dp=4,tp=1,b=1 zb_v x2, ddp, full",
                            "pp=4,dp=2,cp=2,tp=1,b=1 zb_v x2, ddp, full",
                            "pp=4,dp=1,tp=4,b=2 zb_v x2, full", "pp=1,dp=16,tp=1,b=1 ddp, full"}));
}

TEST(CandidatesTest, FixedStagesHaveASchedule) {
  CandidateLimits limits = SixteenRanks();
  limits.fixed.stages_per_rank = 2;
  const Candidate usual = UsualCandidate({.pp = 4, .dp = 4}, limits);
  EXPECT_EQ(usual.ToString(), "pp=4,dp=4,tp=1,b=1 interleaved_1f1b x2, zero1");
  const std::vector<std::string> names = NamesOf(Variants(usual, limits));
  EXPECT_THAT(names, IsSupersetOf({"pp=4,dp=4,tp=1,b=1 zb_v x2, zero1",
                                   "pp=4,dp=4,tp=1,b=1 dualpipe_v x2, zero1",
                                   "pp=4,dp=4,tp=1,b=1 interleaved_1f1b x2, fsdp"}));
  EXPECT_THAT(names, Each(Not(HasSubstr("b=1 1f1b"))));
  // 16 micro-batches of one sample divide by 3 ranks no more than 8 of two do.
  limits.ranks = 12;
  limits.batch = 64;
  EXPECT_THAT(NamesOf(CandidatesOf({.pp = 3, .dp = 4}, limits)),
              ElementsAre("pp=3,dp=4,tp=1,b=1 zb_v x2, zero1", "pp=3,dp=4,tp=1,b=2 zb_v x2, zero1",
                          "pp=3,dp=4,tp=1,b=4 zb_v x2, zero1", "pp=3,dp=4,tp=1,b=8 zb_v x2, zero1",
                          "pp=3,dp=4,tp=1,b=16 zb_v x2, zero1"));
  // No other schedule has three.
  limits.fixed.stages_per_rank = 3;
  limits.blocks = 12;
  EXPECT_THAT(NamesOf(Variants(UsualCandidate({.pp = 4, .dp = 4}, limits), limits)),
              Each(HasSubstr("interleaved_1f1b x3")));
}

}  // namespace
}  // namespace lockstep
