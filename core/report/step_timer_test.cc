#include "core/report/step_timer.h"

#include <cstdint>
#include <numeric>  // std::accumulate
#include <string>
#include <vector>

#include "core/report/trace.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

// A rank whose clock the test moves.
struct FakeRank {
  int64_t nanos = 1'000;
  int64_t exposed = 77;

  StepTimer::Options Options(Trace* trace = nullptr) {
    return {.exposed_nanos = [this] { return exposed; },
            .trace = trace,
            .now_nanos = [this] { return nanos; }};
  }
  void Work(int64_t n) { nanos += n; }
  void Wait(int64_t n) {
    nanos += n;
    exposed += n;
  }
};

int64_t SumOfParts(const StepTimes& times) {
  return std::accumulate(times.phases.begin(), times.phases.end(), times.communication_exposed);
}

TEST(StepTimerTest, EachNanosecondBelongsToOnePhase) {
  FakeRank rank;
  StepTimer timer(rank.Options());
  rank.Work(1'000'000);  // between steps: nobody's
  timer.BeginStep(1);
  {
    StepTimer::Scope scope(timer, Phase::kData);
    rank.Work(5);
  }
  rank.Work(3);
  for (int64_t i = 0; i < 2; ++i) {
    {
      StepTimer::Scope scope(timer, Phase::kForward, i);
      rank.Work(100);
      rank.Wait(20);
      rank.Work(10);
    }
    StepTimer::Scope scope(timer, Phase::kBackward, i);
    rank.Work(200);
  }
  rank.Wait(30);
  {
    StepTimer::Scope scope(timer, Phase::kOptimizer);
    rank.Work(40);
  }
  const StepTimes times = timer.EndStep(/*in_flight_nanos=*/150);
  EXPECT_EQ(times.Of(Phase::kForward), 220);
  EXPECT_EQ(times.Of(Phase::kBackward), 400);
  EXPECT_EQ(times.Of(Phase::kOptimizer), 40);
  EXPECT_EQ(times.Of(Phase::kData), 5);
  EXPECT_EQ(times.Of(Phase::kBubble), 0);
  EXPECT_EQ(times.Of(Phase::kOther), 3);
  EXPECT_EQ(times.communication_exposed, 70);
  EXPECT_EQ(times.communication_overlapped, 80);
  EXPECT_EQ(times.total, 738);
  EXPECT_EQ(SumOfParts(times), times.total);
}

TEST(StepTimerTest, NestedScopesInterrupt) {
  FakeRank rank;
  StepTimer timer(rank.Options());
  timer.BeginStep(1);
  {
    StepTimer::Scope backward(timer, Phase::kBackward);
    rank.Work(10);
    {
      StepTimer::Scope again(timer, Phase::kForward);  // a recompute
      rank.Work(7);
    }
    rank.Work(1);
  }
  const StepTimes times = timer.EndStep(0);
  EXPECT_EQ(times.Of(Phase::kBackward), 11);
  EXPECT_EQ(times.Of(Phase::kForward), 7);
  EXPECT_EQ(times.total, 18);
  EXPECT_EQ(times.communication_overlapped, 0);
}

TEST(StepTimerTest, WaitsOfABubbleBelongToIt) {
  FakeRank rank;
  StepTimer timer(rank.Options());
  timer.BeginStep(1);
  {
    StepTimer::Scope bubble(timer, Phase::kBubble);
    rank.Wait(50);
    rank.Work(1);
  }
  rank.Work(9);
  const StepTimes times = timer.EndStep(/*in_flight_nanos=*/58);
  EXPECT_EQ(times.Of(Phase::kBubble), 51);
  EXPECT_EQ(times.communication_exposed, 0);
  EXPECT_EQ(times.communication_overlapped, 8);
  EXPECT_EQ(SumOfParts(times), 60);
}

TEST(StepTimerTest, StepsDoNotLeakIntoEachOther) {
  FakeRank rank;
  StepTimer timer(rank.Options());
  StepTimes sum;
  for (int64_t step = 1; step <= 3; ++step) {
    timer.BeginStep(step);
    {
      StepTimer::Scope scope(timer, Phase::kForward);
      rank.Work(step);
      rank.Wait(10);
    }
    const StepTimes times = timer.EndStep(/*in_flight_nanos=*/15);
    EXPECT_EQ(times.total, step + 10);
    EXPECT_EQ(times.communication_exposed, 10);
    EXPECT_EQ(times.communication_overlapped, 5);
    sum += times;
    rank.Wait(1000);
  }
  EXPECT_EQ(sum.total, 36);
  EXPECT_EQ(sum.Of(Phase::kForward), 6);
  EXPECT_EQ(sum.communication_exposed, 30);
  EXPECT_EQ(sum.communication_overlapped, 15);
}

TEST(StepTimerTest, WritesTheTrace) {
  FakeRank rank;
  Trace trace(0, {.first_step = 2, .steps = 1});
  StepTimer timer(rank.Options(&trace));
  for (int64_t step = 1; step <= 3; ++step) {
    timer.BeginStep(step);
    rank.Work(2);
    {
      StepTimer::Scope scope(timer, Phase::kForward, 4);
      rank.Work(6);
    }
    timer.EndStep(0);
  }
  const std::vector<TraceEvent> events = trace.Record().events;
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].name, "forward");
  EXPECT_EQ(events[0].micro_batch, 4);
  EXPECT_EQ(events[0].start_nanos, 1'010);
  EXPECT_EQ(events[0].duration_nanos, 6);
  EXPECT_EQ(events[1].name, "step 2");
  EXPECT_EQ(events[1].start_nanos, 1'008);
  EXPECT_EQ(events[1].duration_nanos, 8);
}

TEST(StepTimerTest, RunsOnTheRealClock) {
  StepTimer timer({});
  timer.BeginStep(1);
  { StepTimer::Scope scope(timer, Phase::kForward); }
  const StepTimes times = timer.EndStep(0);
  EXPECT_GE(times.total, 0);
  EXPECT_EQ(SumOfParts(times), times.total);
}

}  // namespace
}  // namespace lockstep
