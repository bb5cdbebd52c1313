#include "core/run/saving/best_watch.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/comm/launch.h"
#include "core/config/best_settings.h"
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

class ResumedBestWatchTest : public testing::Test {
 protected:
  ResumedBestWatchTest() {
    std::filesystem::remove_all(earlier_.best_folder);
    EXPECT_TRUE(MakeDirectories(earlier_.best_folder).ok());
  }

  void Write(const std::string& rows) const {
    EXPECT_TRUE(WriteFileAtomically(earlier_.metrics, rows).ok());
  }
  // Leaves the best checkpoint of an attempt.
  void Keep(int64_t steps) const {
    const std::string path = CheckpointPath(earlier_.best_folder, steps, CheckpointFiles::kWhole);
    EXPECT_TRUE(WriteFileAtomically(path, "").ok());
  }

  struct Known {
    bool ends_run = false;
    bool is_next_the_best = false;
    bool operator==(const Known&) const = default;
  };
  static Known Knows(bool ends_run, bool is_next_the_best) { return {ends_run, is_next_the_best}; }
  // What each of three ranks knows behind so many steps.
  Known After(int64_t steps, double next, const BestSettings& settings) const {
    std::vector<Known> known(3);
    EXPECT_TRUE(RunRanks(3, {}, [&](RankHandle& handle) {
                  BestWatch watch(settings);
                  BestWatch::Earlier earlier = earlier_;
                  earlier.steps = steps;
                  if (handle.rank() != 0) earlier.metrics = earlier.best_folder = "none";
                  const absl::Status status = watch.Resume(earlier, handle.comm());
                  known[static_cast<size_t>(handle.rank())] = {watch.ends_run(), watch.Take(next)};
                  return status;
                }).ok());
    EXPECT_THAT(known, testing::Each(known[0]));
    return known[0];
  }

  const BestWatch::Earlier earlier_ = {.metrics = testing::TempDir() + "/metrics.jsonl",
                                       .best_folder = testing::TempDir() + "/best",
                                       .validation_every = 2};
};

// What a run without a pause knows after each of its steps, a run that goes on there knows too.
TEST_F(ResumedBestWatchTest, GoesOnWhereAnAttemptEnded) {
  Write(
      "{\"step\": 0, \"loss\": 9}\n"
      "{\"step\": 1, \"validation_loss\": 3}\n"
      "{\"step\": 3, \"validation_loss\": null}\n"
      "{\"step\": 5, \"validation_loss\": 3.5}\n"
      "{\"step\": 7, \"validation_loss\": 2}\n");
  Keep(2);
  const BestSettings settings = {.keep = true, .patience = 2};
  EXPECT_EQ(After(2, 2.5, settings), Knows(false, true));
  EXPECT_EQ(After(4, 2.5, settings), Knows(false, true));
  EXPECT_EQ(After(4, 3.5, settings), Knows(false, false));
  EXPECT_EQ(After(6, 2.5, settings), Knows(true, true));
  EXPECT_EQ(After(8, 2.5, settings), Knows(false, false));
}

// A run that is stopped between its last step and its summary validates twice, and a shorter one
// after a step that the longer one does not.
TEST_F(ResumedBestWatchTest, WaitsForAsManyLossesAsARunWithoutAPause) {
  Write(
      "{\"step\": 1, \"validation_loss\": 3}\n"
      "{\"step\": 3, \"validation_loss\": 4}\n"
      "{\"step\": 3, \"validation_loss\": 4}\n"
      "{\"step\": 4, \"validation_loss\": 3.5}\n");
  Keep(2);
  EXPECT_EQ(After(5, 3.2, {.keep = true, .patience = 2}), Knows(false, false));
}

// As one behind a later step had replaced it, from before which the run goes on.
TEST_F(ResumedBestWatchTest, WhereTheBestCheckpointIsGoneTheNextOneIsKept) {
  Write(
      "{\"step\": 1, \"validation_loss\": 3}\n"
      "{\"step\": 3, \"validation_loss\": 5}\n"
      "{\"step\": 5, \"validation_loss\": 2}\n");
  Keep(6);
  const BestSettings settings = {.keep = true, .patience = 2};
  EXPECT_EQ(After(4, 4, settings), Knows(false, true));
  EXPECT_EQ(After(4, std::nan(""), settings), Knows(false, false));
  EXPECT_EQ(After(6, 4, settings), Knows(false, false));
}

TEST_F(ResumedBestWatchTest, WithoutAFileThereWereNone) {
  std::filesystem::remove(earlier_.metrics);
  EXPECT_EQ(After(4, 1e30, {.keep = true}), Knows(false, true));
}

}  // namespace
}  // namespace lockstep
