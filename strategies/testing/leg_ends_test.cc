// The end of a leg: stops there and beside idle ranks, and what the change of mesh behind it takes.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/run/stop/stop_request.h"
#include "core/run/trainer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/mesh/mesh.h"
#include "strategies/presets.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Where = RunPlace::Where;

class LegEndsTest : public ::testing::Test {
 protected:
  LegEndsTest() {
    RemoveTree(folder_);
    EXPECT_TRUE(MakeDirectories(folder_).ok());
    EXPECT_TRUE(WriteFileAtomically(folder_ + "/workload.toml", SmallGptConfig()).ok());
  }

  std::string out() const { return folder_ + "/out"; }

  // As threads, which call visit_.
  absl::StatusOr<std::vector<RankReport>> Train(const Assignments& assignments) {
    CommandLine line;
    line.configs = {folder_ + "/workload.toml"};
    line.assignments = With({"mesh.dp=1", "cut.shards=4", "checkpoint.every=1"}, assignments);
    line.out = out();
    LS_ASSIGN_OR_RETURN(TrainingRun run,
                        PrepareRun(line, MeshStrategy(), MakeModel, {}, LegStrategies()));
    stop_ = run.stop;
    run.visit = visit_;
    return TrainRanks(run);
  }

  const std::string folder_ = ::testing::TempDir() + "/leg_ends_test";
  std::shared_ptr<StopRequest> stop_;
  PlaceVisitor visit_;
};

// The idle rank waits for the end of the step, and must not count the next one as begun.
TEST_F(LegEndsTest, AStopEndsTheStepThatTheOthersTrainBesideAnIdleRank) {
  std::optional<int64_t> last;
  visit_ = [&](const RunPlace& place) {
    if (place.step != 1 || place.where != Where::kStepEnd) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the idle rank comes to wait
    last = stop_->Stop();
  };
  const auto reports = Train({"train.legs=[\"3: single\", \"1: ddp dp=2\"]", "checkpoint.every=0"});
  ASSERT_TRUE(reports.ok()) << reports.status();
  EXPECT_EQ(last, 2);
  EXPECT_EQ(reports->at(0).steps_behind, 2);
}

// Ranks that were idle in the leg before have compared nothing.
TEST_F(LegEndsTest, AStopInTheLastStepOfALegIsSavedByTheRanksOfTheNext) {
  visit_ = [&](const RunPlace& place) {
    if (place.step == 1 && place.where == Where::kStepBegin) stop_->Stop();
  };
  const auto reports = Train(
      {"train.legs=[\"2: ddp dp=2\", \"2: ddp dp=4\"]", "guard.every=2", "checkpoint.every=0"});
  ASSERT_TRUE(reports.ok()) << reports.status();
  EXPECT_EQ(reports->at(0).steps_behind, 2);
  EXPECT_EQ(ListCheckpoints(out() + "/checkpoints").value().back().step, 2);
}

// Rank 1 is still at its checkpoint when rank 0 is done with the leg, which waits for it: the time
// of the change has that wait in it.
TEST_F(LegEndsTest, AChangeOfMeshTakesAsLongAsTheRunIsHeldUp) {
  std::atomic<bool> has_ended = false;
  double held_up = 0;  // seconds
  visit_ = [&](const RunPlace& place) {
    if (place.rank == 0 && place.where == Where::kLegEnd) has_ended = true;
    if (place.rank != 1 || place.step != 1 || place.where != Where::kCheckpoint) return;
    const int64_t start = NowNanos();
    while (!has_ended && SecondsSince(start) < 30) std::this_thread::yield();
    const int64_t wait_start = NowNanos();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    held_up = SecondsSince(wait_start);
  };
  const auto reports = Train({"train.legs=[\"2: ddp dp=2\", \"2: ddp dp=4\"]"});
  ASSERT_TRUE(reports.ok()) << reports.status();
  ASSERT_TRUE(has_ended);
  ASSERT_EQ(reports->at(0).changes.size(), 1u);
  EXPECT_GE(reports->at(0).changes[0].seconds, held_up);
}

TEST_F(LegEndsTest, TrafficBeforeTheLastLegIsThatOfTheChangeToIt) {
  const auto reports = Train({"train.legs=[\"2: single\", \"2: ddp dp=4\"]"});
  ASSERT_TRUE(reports.ok()) << reports.status();
  ASSERT_EQ(reports->size(), 4u);
  double sent = 0;
  for (const RankReport& report : *reports) {
    sent += report.start_traffic.Of("change of mesh").wire_bytes;
  }
  EXPECT_GT(sent, 0);
  EXPECT_EQ(static_cast<int64_t>(sent), reports->at(0).changes.at(0).sent_bytes);
}

// Each leg fits the limit by itself.
TEST_F(LegEndsTest, WantOfMemoryInAChangeOfMeshIsSaidToBeThere) {
  const Assignments wide = {"model.width=256", "batch.size=4"};
  const auto one = Train(With(wide, {"train.legs=[\"4: ddp dp=2\"]"}));
  ASSERT_TRUE(one.ok()) << one.status();
  const int64_t limit = one->at(0).memory.peak_total() + (1 << 16);
  RemoveTree(out());
  const auto two = Train(With(wide, {"train.legs=[\"2: ddp dp=2\", \"2: ddp dp=4\"]",
                                     absl::StrCat("memory.limit=", limit)}));
  EXPECT_THAT(std::string(two.status().message()),
              HasSubstr("at the change of mesh behind step 2, where the state of both layouts is "
                        "held at once: "));
}

}  // namespace
}  // namespace lockstep
