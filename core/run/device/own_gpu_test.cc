#include "core/run/device/own_gpu.h"

#include <string>

#include "core/base/status.h"
#include "core/comm/launch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr GpuId kA = {1, 10}, kB = {1, 11}, kC = {2, 10}, kD = {2, 11};
using Visible = std::vector<std::vector<GpuId>>;

TEST(OwnGpuTest, RanksThatSeeTheSameGpusGetThemInOrder) {
  EXPECT_THAT(*DivideGpus(Visible(4, {kC, kA, kD, kB})), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(*DivideGpus(Visible(2, {kA, kB, kC})), ElementsAre(0, 1));
}

// Two machines, on each of which two ranks see one GPU each.
TEST(OwnGpuTest, RanksThatSeeOneGpuEachHaveIt) {
  EXPECT_THAT(*DivideGpus(Visible{{kA}, {kB}, {kC}, {kD}}), ElementsAre(0, 0, 0, 0));
}

// Rank 0 gives way to rank 1, and rank 1 to rank 2.
TEST(OwnGpuTest, RanksGiveWayToThoseThatSeeFewer) {
  EXPECT_THAT(*DivideGpus(Visible{{kA, kB}, {kA, kC}, {kA}}), ElementsAre(1, 1, 0));
  EXPECT_THAT(*DivideGpus(Visible{{kA, kB}, {kA}, {kB, kC}}), ElementsAre(1, 0, 1));
}

TEST(OwnGpuTest, RanksThatWouldShareAreRefused) {
  for (const Visible& visible : {Visible{{kA}, {kB}, {kA}}, Visible(3, {kA, kB})}) {
    const absl::Status status = DivideGpus(visible).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("rank 2 sees"), HasSubstr("threads")));
  }
}

// Ranks tell each other what they see, however many GPUs that is.
TEST(OwnGpuTest, RanksChooseTogether) {
  const Visible visible = {{kA, kB, kC}, {kA}, {kB, kA}, {kD}};
  const int expected[] = {2, 0, 0, 0};
  const absl::Status status = RunRanks(4, {}, [&](RankHandle& handle) -> absl::Status {
    const int rank = handle.comm().rank();
    LS_ASSIGN_OR_RETURN(const int own,
                        ChooseOwnGpu(visible[static_cast<size_t>(rank)], handle.comm()));
    EXPECT_EQ(own, expected[rank]);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(OwnGpuTest, AllRanksGetTheError) {
  const absl::Status status = RunRanks(2, {}, [&](RankHandle& handle) -> absl::Status {
    const absl::StatusOr<int> own = ChooseOwnGpu({kA}, handle.comm());
    EXPECT_EQ(own.status().code(), absl::StatusCode::kUnavailable) << handle.comm().rank();
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace lockstep
