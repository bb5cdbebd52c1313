// Conformance with torchgpipe, "worker": what its worker threads promise, of ranks.
//
// Ranks are threads (or processes) that run their schedule; there is no queue of tasks to join, and
// none that outlives a step. That an error in any pass ends all ranks with the first cause is
// tested in strategies/stages/schedule_runner_test.cc; what a Work promises in core/comm.

#include <atomic>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "core/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "strategies/schedules/named_schedules.h"
#include "strategies/stages/testing/probe.h"
#include "strategies/stages/testing/tested_pipeline.h"

namespace lockstep {
namespace {

TEST(WorkerTest, JoinRunningWorkers) {
  Events events;
  const auto make_model = [&] {
    return MakeProbes({Recorded("0", events), Recorded("1", events)});
  };
  const auto outcome = RunPipeline({.make_model = make_model, .schedule = GPipeSchedule(2, 3)});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(events.all().size(), 2u * 3 * 2);
}

// Another rank is inside a block when one fails: the run ends when that block has.
TEST(WorkerTest, JoinRunningWorkersWithException) {
  std::atomic<bool> inside = false, failed = false, left = false;
  ProbeActions first, last;
  first.forward = [&](Pass& pass) {
    if (pass.micro_batch != 1) return;
    inside = true;
    for (int i = 0; i < 10'000 && !failed; ++i) absl::SleepFor(absl::Milliseconds(1));
    left = true;
  };
  last.forward = [&](Pass&) {
    for (int i = 0; i < 10'000 && !inside; ++i) absl::SleepFor(absl::Milliseconds(1));
    failed = true;
    throw StatusException(absl::DataLossError("broken"));
  };
  const auto outcome = RunPipeline({.make_model =
                                        [&] {
                                          return MakeProbes({first, last});
                                        },
                                    .schedule = GPipeSchedule(2, 3)});
  EXPECT_EQ(outcome.status().message(), "rank 1: broken");
  EXPECT_TRUE(left);
}

// After a failure nothing is left that a next run could stumble over.
TEST(WorkerTest, ComputeFailureThenSuccess) {
  bool fails = true;
  ProbeActions last;
  last.backward = [&](int64_t) {
    if (fails) throw StatusException(absl::DataLossError("broken"));
  };
  const PipelineUnderTest pipeline = {.make_model =
                                          [&] {
                                            return MakeProbes({{}, last});
                                          },
                                      .schedule = OneForwardOneBackwardSchedule(2, 3)};
  EXPECT_EQ(RunPipeline(pipeline).status().message(), "rank 1: broken");
  fails = false;
  const auto outcome = RunPipeline(pipeline);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(*outcome, WithoutPipeline(pipeline));
}

// All ranks record in training, and none in evaluation.
TEST(WorkerTest, GradModeIsThatOfThePassOnAllRanks) {
  std::atomic<int> recorded = 0, unrecorded = 0;
  ProbeActions tells;
  tells.forward = [&](Pass& pass) {
    EXPECT_EQ(pass.tape.recording(), pass.training());
    ++(pass.tape.recording() ? recorded : unrecorded);
  };
  const auto outcome =
      RunPipeline({.make_model =
                       [&] {
                         return MakeProbes({tells, tells, tells});
                       },
                   .schedule = GPipeSchedule(3, 2)},
                  [](RankUnderTest& rank) { rank.runner().Evaluate(rank.MakeBatch(0, 4)); });
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(recorded, 3 * 2);
  EXPECT_EQ(unrecorded, 3);
}

}  // namespace
}  // namespace lockstep
