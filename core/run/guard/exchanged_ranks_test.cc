#include "core/run/guard/exchanged_ranks.h"

#include <string>

#include "absl/status/status.h"
#include "core/comm/launch.h"
#include "core/comm/nccl_reductions.h"
#include "core/config/settings.h"
#include "core/kernels/cpu/instruction_set.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(CheckAreAlikeTest, ProcessorsHaveTheSameInstructions) {
  const auto check = [](InstructionSet of_rank_1) {
    return RunRanks(3, {}, [=](RankHandle& handle) {
      Settings settings;
      settings.instructions = handle.rank() == 1 ? of_rank_1 : InstructionSet::kAvx2;
      const absl::Status alike = CheckAreAlike(settings, /*on_gpus=*/false, handle.comm());
      EXPECT_EQ(alike.ok(), of_rank_1 == InstructionSet::kAvx2) << handle.rank();
      return alike;
    });
  };
  EXPECT_EQ(check(InstructionSet::kAvx2), absl::OkStatus());
  const absl::Status differ = check(InstructionSet::kAvx512);
  EXPECT_TRUE(absl::IsFailedPrecondition(differ)) << differ;
  EXPECT_THAT(std::string(differ.message()), HasSubstr("run.instructions = \"avx2\""));
}

TEST(CheckAreAlikeTest, SumsOnGpusHaveOneOrder) {
  const auto check = [](int ranks, NcclReductions reductions) {
    return RunRanks(ranks, {}, [=](RankHandle& handle) {
      Settings settings;
      settings.nccl_reductions = reductions;
      return CheckAreAlike(settings, /*on_gpus=*/true, handle.comm());
    });
  };
  EXPECT_EQ(check(2, NcclReductions::kFast), absl::OkStatus());
  EXPECT_EQ(check(3, NcclReductions::kExact), absl::OkStatus());
  EXPECT_THAT(std::string(check(3, NcclReductions::kFast).message()),
              HasSubstr("comm.nccl_reductions = \"exact\""));
}

}  // namespace
}  // namespace lockstep
