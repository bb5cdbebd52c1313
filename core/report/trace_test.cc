#include "core/report/trace.h"

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Names(const Trace& trace) {
  std::vector<std::string> names;
  for (const TraceEvent& event : trace.Events()) names.push_back(event.name);
  return names;
}

TEST(TraceTest, KeepsTheStepsOfItsWindow) {
  Trace trace(0, {.first_step = 3, .steps = 2});
  trace.Add({.name = "before any step"});
  for (int64_t step = 0; step < 8; ++step) {
    trace.BeginStep(step);
    EXPECT_EQ(trace.enabled(), step == 3 || step == 4);
    trace.Add({.name = std::to_string(step)});
    TraceSpan span(&trace, TraceTrack::kData, "span " + std::to_string(step));
  }
  EXPECT_THAT(Names(trace), ElementsAre("3", "span 3", "4", "span 4"));
}

TEST(TraceTest, KeepsMemoryInItsWindowOnly) {
  Trace trace(0, {.first_step = 1, .steps = 2});
  for (int64_t step = 0; step < 4; ++step) {
    trace.BeginStep(step);
    trace.AddMemory({{.nanos = step, .live_bytes = {64 * step}}});
  }
  const std::vector<MemorySample> memory = trace.Memory();
  ASSERT_EQ(memory.size(), 2u);
  EXPECT_EQ(memory[0].nanos, 1);
  EXPECT_EQ(memory[1].live_bytes[0], 128);
}

TEST(TraceTest, AnEmptyWindowKeepsNothing) {
  Trace trace(0, {.first_step = 0, .steps = 0});
  trace.BeginStep(0);
  trace.Add({.name = "event"});
  EXPECT_THAT(trace.Events(), IsEmpty());
}

TEST(TraceSpanTest, CoversItsScope) {
  Trace trace(0, {.first_step = 0, .steps = 1});
  trace.BeginStep(0);
  const int64_t before = NowNanos();
  {
    TraceSpan outer(&trace, TraceTrack::kCommunication, "outer");
    outer.event().bytes = 12;
    TraceSpan inner(&trace, TraceTrack::kCommunication, "inner");
  }
  const int64_t after = NowNanos();
  const std::vector<TraceEvent> events = trace.Events();
  ASSERT_THAT(Names(trace), ElementsAre("inner", "outer"));
  EXPECT_EQ(events[1].bytes, 12);
  EXPECT_EQ(events[1].track, TraceTrack::kCommunication);
  EXPECT_LE(before, events[1].start_nanos);
  EXPECT_LE(events[1].start_nanos, events[0].start_nanos);
  EXPECT_LE(events[0].start_nanos + events[0].duration_nanos,
            events[1].start_nanos + events[1].duration_nanos);
  EXPECT_LE(events[1].start_nanos + events[1].duration_nanos, after);
}

TEST(TraceSpanTest, ItsBeginDecides) {
  Trace trace(0, {.first_step = 1, .steps = 1});
  trace.BeginStep(0);
  {
    TraceSpan early(&trace, TraceTrack::kData, "begins before");
    trace.BeginStep(1);
  }
  {
    TraceSpan late(&trace, TraceTrack::kData, "ends after");
    trace.BeginStep(2);
  }
  EXPECT_THAT(Names(trace), ElementsAre("ends after"));
}

TEST(TraceSpanTest, NeedsNoTrace) {
  TraceSpan span(nullptr, TraceTrack::kData, "nothing");
  span.event().bytes = 3;
}

// The threads of a rank add while its steps go on; ThreadSanitizer watches.
TEST(TraceTest, ThreadsAddTogether) {
  Trace trace(0, {.first_step = 0, .steps = 1000});
  trace.BeginStep(0);
  std::vector<std::thread> threads;
  for (const TraceTrack track : {TraceTrack::kCommunication, TraceTrack::kData}) {
    threads.emplace_back([&trace, track] {
      for (int i = 0; i < 500; ++i) TraceSpan(&trace, track, "work");
    });
  }
  for (int64_t step = 1; step < 1000; ++step) {
    trace.BeginStep(step);
    if (step % 100 != 0) continue;
    EXPECT_LE(trace.Events().size(), 1000u);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(trace.Events().size(), 1000u);
}

}  // namespace
}  // namespace lockstep
