#include "core/run/saving/best_watch.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/checkpoint/checkpoint_folder.h"
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

class ResumedBestWatchTest : public testing::Test {
 protected:
  ResumedBestWatchTest() {
    std::filesystem::remove_all(earlier_.best_folder);
    EXPECT_TRUE(MakeDirectories(earlier_.best_folder).ok());
  }

  // Writes a row for each validation: the step, from 0, and the loss as JSON has it.
  void Write(const std::vector<std::pair<int, std::string>>& validations) const {
    std::string rows = "{\"step\": 0, \"loss\": 9}\n";
    for (const auto& [step, loss] : validations) {
      absl::StrAppend(&rows, "{\"step\": ", step, ", \"validation_loss\": ", loss, "}\n");
    }
    EXPECT_TRUE(WriteFileAtomically(earlier_.metrics, rows).ok());
  }
  // Leaves the best checkpoint of an attempt in the place of an earlier one.
  void Keep(int64_t steps) const {
    std::filesystem::remove_all(earlier_.best_folder);
    EXPECT_TRUE(MakeDirectories(earlier_.best_folder).ok());
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
  Known After(int64_t steps, double next) const {
    std::vector<Known> known(3);
    EXPECT_TRUE(RunRanks(3, {}, [&](RankHandle& handle) {
                  BestWatch watch({.keep = true, .patience = 2, .every = 2});
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
                                       .best_folder = testing::TempDir() + "/best"};
};

// What a run without a pause knows after each of its steps, a run that goes on there knows too.
TEST_F(ResumedBestWatchTest, GoesOnWhereAnAttemptEnded) {
  Write({{1, "3"}, {3, "null"}, {5, "3.5"}, {7, "2"}});
  Keep(2);
  EXPECT_EQ(After(2, 2.5), Knows(false, true));
  EXPECT_EQ(After(4, 2.5), Knows(false, true));
  EXPECT_EQ(After(4, 3.5), Knows(false, false));
  EXPECT_EQ(After(6, 2.5), Knows(true, true));
  Keep(8);
  EXPECT_EQ(After(8, 2.5), Knows(false, false));
}

// A run that is stopped between its last step and its summary validates twice, and a shorter one
// after a step that the longer one does not.
TEST_F(ResumedBestWatchTest, WaitsForAsManyLossesAsARunWithoutAPause) {
  Write({{1, "3"}, {3, "4"}, {3, "4"}, {4, "3.5"}});
  Keep(2);
  EXPECT_EQ(After(5, 3.2), Knows(false, false));
}

// As one behind a later step had replaced it, from before which the run goes on.
TEST_F(ResumedBestWatchTest, WhereTheBestCheckpointIsGoneTheNextOneIsKept) {
  Write({{1, "3"}, {3, "5"}, {5, "2"}});
  Keep(6);
  EXPECT_EQ(After(4, 4), Knows(false, true));
  EXPECT_EQ(After(4, std::nan("")), Knows(false, false));
  EXPECT_EQ(After(6, 4), Knows(false, false));
  // Which is then the one to be lower than: not the one that is gone.
  Keep(4);
  EXPECT_EQ(After(4, 4), Knows(false, true));
  EXPECT_EQ(After(4, 5), Knows(false, false));
}

TEST_F(ResumedBestWatchTest, WithoutAFileThereWereNone) {
  std::filesystem::remove(earlier_.metrics);
  EXPECT_EQ(After(4, 1e30), Knows(false, true));
}

}  // namespace
}  // namespace lockstep
