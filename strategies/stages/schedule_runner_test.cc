// The runtime by itself: what is in flight, in which order things happen, what travels meanwhile,
// and what becomes of errors.

#include "strategies/stages/schedule_runner.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "strategies/schedules/named_schedules.h"
#include "strategies/stages/testing/probe.h"
#include "strategies/stages/testing/tested_pipeline.h"

namespace lockstep {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

// As many probes that do nothing else as a schedule has stages.
std::function<Model()> Probes(const Schedule& schedule, const ProbeActions& actions = {}) {
  return [stages = schedule.stages(), actions] {
    return MakeProbes(std::vector<ProbeActions>(stages, actions));
  };
}

std::vector<Schedule> SchedulesOf(int ranks, int micro_batches) {
  std::vector<Schedule> schedules;
  for (const std::string& name : ScheduleNames()) {
    const int stages = name == "interleaved_1f1b" ? 2 : DefaultStagesPerRank(name);
    const auto schedule = MakeSchedule(name, ranks, stages, micro_batches);
    // interleaved_1f1b and dualpipe_v do not take any number of micro-batches.
    if (schedule.ok()) schedules.push_back(*schedule);
  }
  return schedules;
}

// --- activations in flight
// ------------------------------------------------------------------------

class InFlightTest : public ::testing::TestWithParam<int> {};

TEST_P(InFlightTest, IsWhatTheScheduleSays) {
  const int ranks = GetParam();
  for (int micro_batches = 1; micro_batches <= 8; ++micro_batches) {
    for (const Schedule& schedule : SchedulesOf(ranks, micro_batches)) {
      SCOPED_TRACE(absl::StrCat(schedule.name, ", micro-batches: ", micro_batches));
      std::vector<int> measured(ranks);
      const PipelineUnderTest pipeline = {.make_model = Probes(schedule), .schedule = schedule};
      const auto outcome = RunPipeline(pipeline, [&](RankUnderTest& rank) {
        measured[rank.index()] = rank.runner().peak_in_flight();
      });
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_EQ(*outcome, WithoutPipeline(pipeline));
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(measured[rank], PeakActivations(schedule, rank)) << "rank " << rank;
        if (schedule.name == "gpipe") {
          EXPECT_EQ(measured[rank], micro_batches);
        }
        if (schedule.name == "1f1b") {
          EXPECT_LE(measured[rank], ranks - rank);
        }
        if (schedule.name == "zb_h1") {
          EXPECT_LE(measured[rank], ranks);
        }
        if (schedule.name == "zb_v") {
          EXPECT_LE(measured[rank], 2 * ranks);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, InFlightTest, ::testing::Values(1, 2, 3, 4));

// Blocks that keep 64 KiB each, beside which what travels is nothing: 64 bytes.
constexpr double kKept = 65536;

std::vector<double> PeakBytes(const Schedule& schedule, Checkpointing checkpointing) {
  std::vector<double> peaks(schedule.ranks.size());
  const PipelineUnderTest pipeline = {
      .make_model = Probes(schedule, {.kept_bytes = static_cast<int64_t>(kKept)}),
      .schedule = schedule,
      .checkpointing = checkpointing};
  const auto outcome = RunPipeline(pipeline, [&](RankUnderTest& rank) {
    peaks[rank.index()] =
        static_cast<double>(rank.kernels().allocator().books().peak(MemoryClass::kActivations));
  });
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return peaks;
}

TEST(PeakBytesTest, FollowTheMicroBatchesInFlight) {
  for (const Schedule& schedule : SchedulesOf(4, 8)) {
    const std::vector<double> peaks = PeakBytes(schedule, Checkpointing::kNever);
    for (int rank = 0; rank < 4; ++rank) {
      SCOPED_TRACE(absl::StrCat(schedule.name, ", rank ", rank));
      const int in_flight = PeakActivations(schedule, rank);
      EXPECT_LT(peaks[rank] / kKept, in_flight + 0.15);
      // The first half of a backward gives back what only that one reads, as what is kept here.
      if (HalvesBackwards(schedule)) continue;
      EXPECT_GE(peaks[rank] / kKept, in_flight);
    }
  }
}

TEST(PeakBytesTest, OneForwardOneBackwardKeepsItsPartOfWhatGPipeDoes) {
  const std::vector<double> gpipe = PeakBytes(GPipeSchedule(4, 8), Checkpointing::kNever);
  const std::vector<double> alternating =
      PeakBytes(OneForwardOneBackwardSchedule(4, 8), Checkpointing::kNever);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_NEAR(alternating[rank] / gpipe[rank], (4 - rank) / 8.0, 0.02) << "rank " << rank;
  }
}

// One micro-batch's activations exist at a time; of the last one, kept where only it is, not later.
TEST(PeakBytesTest, WithCheckpointingOneMicroBatchIsThereAtATime) {
  for (const Schedule& schedule : SchedulesOf(3, 6)) {
    if (HalvesBackwards(schedule)) continue;  // halves of backwards keep what they have made again
    EXPECT_THAT(PeakBytes(schedule, Checkpointing::kAlways), Each(::testing::Lt(1.15 * kKept)))
        << schedule.name;
  }
  // GPipe makes the first one again while the last is still kept.
  EXPECT_THAT(PeakBytes(GPipeSchedule(3, 6), Checkpointing::kExceptLast),
              Each(::testing::Lt(2.15 * kKept)));
}

// --- the order of actions
// -------------------------------------------------------------------------

TEST(TraceOrderTest, IsThatOfTheSchedule) {
  for (const Schedule& schedule : SchedulesOf(3, 6)) {
    std::vector<std::vector<std::string>> traced(3);
    const auto outcome = RunPipeline(
        {.make_model = Probes(schedule), .schedule = schedule}, [&](RankUnderTest& rank) {
          const TraceRecord record = rank.trace().Record();
          for (const TraceEvent& event : record.events) {
            if (event.name != "forward" && event.name != "backward") {
              continue;
            }
            traced[rank.index()].push_back(absl::StrCat(event.name, " ", event.micro_batch));
          }
        });
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    for (int rank = 0; rank < 3; ++rank) {
      std::vector<std::string> expected;
      for (const Action& action : schedule.ranks[rank]) {
        const bool is_forward = action.kind == ActionKind::kForward;
        expected.push_back(absl::StrCat(is_forward ? "forward " : "backward ", action.micro_batch));
      }
      EXPECT_THAT(traced[rank], ElementsAreArray(expected)) << schedule.name << ", rank " << rank;
    }
  }
}

// --- transfers while stages compute
// ---------------------------------------------------------------

// Calls of a block on one rank so far, for the one on the other to wait for.
class Calls {
 public:
  void Count() { ++calls_; }
  // False if it takes too long to come true.
  bool Reach(int64_t calls) const {
    for (int i = 0; i < 10'000 && calls_ < calls; ++i) absl::SleepFor(absl::Milliseconds(1));
    return calls_ >= calls;
  }

 private:
  std::atomic<int64_t> calls_ = 0;
};

constexpr int kOverlapped = 4;  // micro-batches

// Checks the receives of a rank's last step. Each but those of the first micro-batch had begun
// before the pass of the one before it did, and each but the last was over when that pass ended.
void ExpectReceivedMeanwhile(RankUnderTest& rank, const std::string& label,
                             const std::string& pass) {
  std::vector<LedgerEntry> received;
  for (const LedgerEntry& entry : rank.ledger().Recent()) {
    const bool is_recv = entry.signature.operation == Operation::kRecv;
    if (is_recv && entry.label == label) received.push_back(entry);
  }
  received.erase(received.begin(), received.end() - kOverlapped);
  std::vector<TraceEvent> passes;
  const TraceRecord record = rank.trace().Record();
  for (const TraceEvent& event : record.events) {
    if (event.name == pass) passes.push_back(event);
  }
  ASSERT_EQ(passes.size(), static_cast<size_t>(kOverlapped));
  for (int i = 0; i + 1 < kOverlapped; ++i) {
    EXPECT_LT(received[i + 1].start_nanos, passes[i].start_nanos) << i;
    if (i + 2 == kOverlapped) continue;
    EXPECT_LT(received[i + 1].end_nanos, passes[i].start_nanos + passes[i].duration_nanos) << i;
  }
}

// The last stage's forward of a micro-batch waits until the first one has begun the one after the
// next: the next one's activations are sent by then.
TEST(OverlapTest, TheNextInputsArriveWhileAForwardRuns) {
  const Schedule schedule = GPipeSchedule(2, kOverlapped);
  Calls begun;
  ProbeActions first, last;
  first.forward = [&](Pass&) { begun.Count(); };
  last.forward = [&](Pass& pass) {
    if (pass.micro_batch + 2 >= kOverlapped) return;
    EXPECT_TRUE(begun.Reach(pass.step * kOverlapped + pass.micro_batch + 3));
  };
  const auto outcome = RunPipeline({.make_model =
                                        [&] {
                                          return MakeProbes({first, last});
                                        },
                                    .schedule = schedule,
                                    .steps = 2},  // in the first one shapes are not known yet
                                   [](RankUnderTest& rank) {
                                     if (rank.index() == 0) return;
                                     ExpectReceivedMeanwhile(rank, "activations", "forward");
                                   });
  ASSERT_TRUE(outcome.ok()) << outcome.status();
}

TEST(OverlapTest, TheNextGradientsArriveWhileABackwardRuns) {
  const Schedule schedule = GPipeSchedule(2, kOverlapped);
  Calls begun;
  int64_t own = 0;
  ProbeActions first, last;
  last.backward = [&](int64_t) { begun.Count(); };
  first.backward = [&](int64_t micro_batch) {
    const int64_t step = own++ / kOverlapped;
    if (micro_batch + 2 >= kOverlapped) return;
    EXPECT_TRUE(begun.Reach(step * kOverlapped + micro_batch + 3));
  };
  const auto outcome =
      RunPipeline({.make_model =
                       [&] {
                         return MakeProbes({first, last});
                       },
                   .schedule = schedule,
                   .steps = 2},
                  [](RankUnderTest& rank) {
                    if (rank.index() == 1) return;
                    ExpectReceivedMeanwhile(rank, "activation gradients", "backward");
                  });
  ASSERT_TRUE(outcome.ok()) << outcome.status();
}

// The last rank of a V has two neighbouring stages, and so has the only rank of one.
TEST(VShapedTransfersTest, StagesOfOneRankDoNotUseTheCommunicator) {
  constexpr int kMicroBatches = 4;
  for (const std::string name : {"zb_v", "dualpipe_v"}) {
    for (const int ranks : {1, 2}) {
      const Schedule schedule = MakeSchedule(name, ranks, 2, kMicroBatches).value();
      const auto outcome = RunPipeline(
          {.make_model = Probes(schedule), .schedule = schedule}, [&](RankUnderTest& rank) {
            std::map<std::string, int> sent;  // by label
            for (const LedgerEntry& entry : rank.ledger().Recent()) {
              if (entry.signature.operation == Operation::kSend) ++sent[entry.label];
            }
            // The stages of a V cross from one rank to the other twice: each rank sends the
            // activations, and the gradients, of one crossing.
            const int expected = ranks == 1 ? 0 : kMicroBatches;
            EXPECT_EQ(sent["activations"], expected) << name << ", rank " << rank.index();
            EXPECT_EQ(sent["activation gradients"], expected) << name << ", rank " << rank.index();
          });
      ASSERT_TRUE(outcome.ok()) << outcome.status();
    }
  }
}

// --- errors
// ---------------------------------------------------------------------------------------

enum class Where { kForward, kBackward, kRecompute };

// Fails at one place of micro-batch 1.
ProbeActions Failing(Where where, const std::string& cause) {
  const auto fail = [cause] { throw StatusException(absl::DataLossError(cause)); };
  ProbeActions actions;
  if (where == Where::kBackward) {
    actions.backward = [fail](int64_t micro_batch) {
      if (micro_batch == 1) fail();
    };
  } else {
    const bool again = where == Where::kRecompute;
    actions.forward = [fail, again](Pass& pass) {
      if (pass.micro_batch == 1 && pass.is_recomputing() == again) fail();
    };
  }
  return actions;
}

class FailureTest : public ::testing::TestWithParam<Where> {};

// All ranks come back with the first cause, and behind the failure no further micro-batch is run.
TEST_P(FailureTest, EndsTheRunOnAllRanksWithItsCause) {
  for (const Schedule& schedule : SchedulesOf(3, 6)) {
    for (int failing = 0; failing < schedule.stages(); ++failing) {
      SCOPED_TRACE(absl::StrCat(schedule.name, ", stage ", failing));
      Events events;
      const auto make_model = [&] {
        std::vector<ProbeActions> probes;
        for (int stage = 0; stage < schedule.stages(); ++stage) {
          const ProbeActions does =
              stage == failing ? Failing(GetParam(), "the block is broken") : ProbeActions();
          const ProbeActions tells = Recorded(absl::StrCat(stage), events);
          ProbeActions both;
          both.forward = [=](Pass& pass) {
            if (does.forward) does.forward(pass);
            tells.forward(pass);
          };
          both.backward = [=](int64_t micro_batch) {
            if (does.backward) does.backward(micro_batch);
            tells.backward(micro_batch);
          };
          probes.push_back(both);
        }
        return MakeProbes(probes);
      };
      const auto outcome = RunPipeline({.make_model = make_model,
                                        .schedule = schedule,
                                        .checkpointing = Checkpointing::kAlways});
      EXPECT_TRUE(absl::IsDataLoss(outcome.status())) << outcome.status();
      EXPECT_EQ(outcome.status().message(),
                absl::StrCat("rank ", schedule.rank_of_stage[failing], ": the block is broken"));
      for (int micro_batch = 1; micro_batch < 6; ++micro_batch) {
        if (GetParam() == Where::kForward) {
          EXPECT_EQ(events.Count(absl::StrCat("F", failing, " ", micro_batch)), 0);
        }
        EXPECT_EQ(events.Count(absl::StrCat("B", failing, " ", micro_batch)), 0);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Places, FailureTest,
                         ::testing::Values(Where::kForward, Where::kBackward, Where::kRecompute),
                         [](const auto& place) {
                           return place.param == Where::kForward    ? "Forward"
                                  : place.param == Where::kBackward ? "Backward"
                                                                    : "Recompute";
                         });

TEST(FailuresTest, OfTwoStagesOneIsTold) {
  const Schedule schedule = OneForwardOneBackwardSchedule(3, 6);
  for (const Where where : {Where::kForward, Where::kBackward}) {
    const auto outcome =
        RunPipeline({.make_model =
                         [&] {
                           return MakeProbes({Failing(where, "first"), {}, Failing(where, "last")});
                         },
                     .schedule = schedule});
    EXPECT_THAT(std::string(outcome.status().message()), AnyOf("rank 0: first", "rank 2: last"));
  }
}

TEST(FailuresTest, ABatchThatCannotBeReadEndsTheRunToo) {
  std::atomic<int> batches = 0;
  const auto outcome =
      RunPipeline({.make_model =
                       [] {
                         return MakeProbes({{}, {}, {}});
                       },
                   .schedule = GPipeSchedule(3, 4),
                   .make_batch = [&](Kernels&, int64_t first_sample, int64_t) -> Batch {
                     if (first_sample >= 0) ++batches;
                     throw StatusException(absl::DataLossError("no such file"));
                   }});
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("no such file"));
  EXPECT_GE(batches, 1);
}

// --- uneven micro-batches, several steps
// ----------------------------------------------------------

TEST(ScheduleRunnerTest, HasTheBitsOfOneStageForUnevenMicroBatchesAndLaterSteps) {
  for (const Schedule& schedule : SchedulesOf(2, 4)) {
    for (const Checkpointing checkpointing :
         {Checkpointing::kAlways, Checkpointing::kExceptLast, Checkpointing::kNever}) {
      const PipelineUnderTest pipeline = {.make_model = Probes(schedule),
                                          .schedule = schedule,
                                          .checkpointing = checkpointing,
                                          .samples = 6,  // 2, 2, 1 and 1
                                          .steps = 3};
      const auto outcome = RunPipeline(pipeline);
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_GT(outcome->loss, 0);
      EXPECT_EQ(*outcome, WithoutPipeline(pipeline)) << schedule.name;
    }
  }
}

TEST(ScheduleRunnerTest, EvaluationLeavesNothingBehindAndRecordsNothing) {
  const Schedule schedule = *InterleavedSchedule(2, 2, 2);
  std::vector<EvaluationSums> sums(2);
  Events events;
  const auto make_model = [&] {
    std::vector<ProbeActions> probes;
    for (int i = 0; i < 4; ++i) probes.push_back(Recorded(absl::StrCat(i), events));
    return MakeProbes(probes);
  };
  const auto outcome = RunPipeline({.make_model = make_model,
                                    .schedule = schedule,
                                    .checkpointing = Checkpointing::kAlways,
                                    .steps = 0},
                                   [&](RankUnderTest& rank) {
                                     Batch batch = rank.MakeBatch(0, 3);
                                     sums[rank.index()] = rank.runner().Evaluate(batch);
                                     batch = Batch();
                                     const MemoryBooks books = rank.kernels().allocator().books();
                                     EXPECT_EQ(books.live(MemoryClass::kActivations), 0);
                                   });
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(sums[0].loss.Total(), 0);
  EXPECT_GT(sums[1].loss.Total(), 0);
  EXPECT_THAT(events.all(), ElementsAreArray({"F0 0", "F1 0", "F2 0", "F3 0"}));
}

}  // namespace
}  // namespace lockstep
