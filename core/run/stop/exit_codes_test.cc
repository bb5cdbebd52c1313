#include "core/run/stop/exit_codes.h"

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(ExitCodesTest, OnlyWhatMayGoWellTheNextTimeIsWorthARestart) {
  EXPECT_EQ(ExitCodeOfFailure(absl::UnavailableError("a link is down")), kRankLostExitCode);
  EXPECT_EQ(ExitCodeOfFailure(absl::DataLossError("replicas differ")), kRankLostExitCode);
  EXPECT_EQ(ExitCodeOfFailure(absl::DeadlineExceededError("a rank is silent")), kRankLostExitCode);
  EXPECT_EQ(ExitCodeOfFailure(absl::InvalidArgumentError("no such key")), 1);
  EXPECT_EQ(ExitCodeOfFailure(absl::FailedPreconditionError("the directory is used")), 1);
  EXPECT_EQ(ExitCodeOfFailure(absl::ResourceExhaustedError("the disk is full")), 1);
  EXPECT_EQ(ExitCodeOfFailure(absl::OutOfRangeError("the loss is NaN")), 1);
}

}  // namespace
}  // namespace lockstep
