#include "core/run/saving/best_watch.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/base/file.h"
#include "core/comm/launch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(BestWatchTest, KnowsTheLowest) {
  BestWatch watch({.keep = true});
  EXPECT_TRUE(watch.Take(3));
  EXPECT_FALSE(watch.Take(3));
  EXPECT_FALSE(watch.Take(4));
  EXPECT_TRUE(watch.Take(2.999));
  EXPECT_FALSE(watch.Take(std::nan("")));
  EXPECT_FALSE(watch.Take(INFINITY));
  EXPECT_TRUE(watch.Take(1));
  EXPECT_FALSE(watch.ends_run());
}

TEST(BestWatchTest, EndsARunAfterItsPatience) {
  BestWatch watch({.patience = 2});
  watch.Take(3);
  watch.Take(3.5);
  EXPECT_FALSE(watch.ends_run());
  watch.Take(2);  // a lower one begins the count anew
  watch.Take(std::nan(""));
  EXPECT_FALSE(watch.ends_run());
  watch.Take(2);
  EXPECT_TRUE(watch.ends_run());
}

TEST(BestWatchTest, ALossMustBeLowerByMoreThanTheDelta) {
  BestWatch watch({.patience = 3, .min_delta = 0.5});
  EXPECT_TRUE(watch.Take(3));
  EXPECT_FALSE(watch.Take(2.5));
  EXPECT_FALSE(watch.Take(2.6));
  EXPECT_TRUE(watch.Take(2.25));
}

// What a run without a pause knows after each of its steps, a run that goes on there knows too.
TEST(BestWatchTest, GoesOnWhereAnAttemptEnded) {
  const std::string metrics = testing::TempDir() + "/metrics.jsonl";
  ASSERT_TRUE(WriteFileAtomically(metrics,
                                  "{\"step\": 0, \"loss\": 9}\n"
                                  "{\"step\": 1, \"validation_loss\": 3}\n"
                                  "{\"step\": 3, \"validation_loss\": null}\n"
                                  "{\"step\": 5, \"validation_loss\": 3.5}\n"
                                  "{\"step\": 7, \"validation_loss\": 2}\n")
                  .ok());
  const auto resumed = [&](int64_t steps) {
    std::vector<int> ends(3);
    std::vector<int> lower(3);
    EXPECT_TRUE(RunRanks(3, {}, [&](RankHandle& handle) {
                  BestWatch watch({.patience = 2});
                  const absl::Status status =
                      watch.Resume(handle.rank() == 0 ? metrics : "none", steps, handle.comm());
                  const auto rank = static_cast<size_t>(handle.rank());
                  ends[rank] = watch.ends_run() ? 1 : 0;
                  lower[rank] = watch.Take(2.5) ? 1 : 0;
                  return status;
                }).ok());
    EXPECT_THAT(ends, testing::Each(ends[0]));
    EXPECT_THAT(lower, testing::Each(lower[0]));
    return std::pair(ends[0], lower[0]);
  };
  EXPECT_EQ(resumed(2), std::pair(0, 1));
  EXPECT_EQ(resumed(4), std::pair(0, 1));
  EXPECT_EQ(resumed(6), std::pair(1, 1));
  EXPECT_EQ(resumed(8), std::pair(0, 0));
}

TEST(BestWatchTest, WithoutAFileThereWereNone) {
  EXPECT_TRUE(RunRanks(2, {}, [&](RankHandle& handle) {
                BestWatch watch({.keep = true});
                const absl::Status status =
                    watch.Resume(testing::TempDir() + "/none.jsonl", 4, handle.comm());
                EXPECT_TRUE(watch.Take(1e30));
                return status;
              }).ok());
}

}  // namespace
}  // namespace lockstep
