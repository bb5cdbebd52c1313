#include "core/comm/agree.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/comm/launch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(AgreeOnFirstTest, AllIsWellWhereAllIsWell) {
  for (const int ranks : {1, 3}) {
    EXPECT_TRUE(RunRanks(ranks, {}, [](RankHandle& handle) {
                  return AgreeOnFirst(absl::OkStatus(), handle.comm());
                }).ok());
  }
}

TEST(AgreeOnFirstTest, TheFirstToHaveAnErrorTellsItAndNobodyGoesOn) {
  std::vector<absl::Status> agreed(4);
  const absl::Status status = RunRanks(4, {}, [&](RankHandle& handle) {
    const int rank = handle.rank();
    const absl::Status own =
        rank == 0 ? absl::OkStatus() : absl::NotFoundError(absl::StrCat("seen by ", rank));
    agreed[rank] = AgreeOnFirst(own, handle.comm());
    return agreed[rank];
  });
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("rank 1: "), HasSubstr("seen by 1")));
  EXPECT_EQ(agreed[1], absl::NotFoundError("seen by 1"));
  for (const int other : {0, 2, 3}) {
    EXPECT_FALSE(agreed[other].ok());
    EXPECT_NE(agreed[other], absl::NotFoundError(absl::StrCat("seen by ", other)));
  }
}

}  // namespace
}  // namespace lockstep
