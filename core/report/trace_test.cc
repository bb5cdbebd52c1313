#include "core/report/trace.h"

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Names(const Trace& trace) {
  std::vector<std::string> names;
  const TraceRecord record = trace.Record();
  for (const TraceEvent& event : record.events) names.push_back(event.name);
  return names;
}

TEST(TraceTest, KeepsTheStepsOfItsWindow) {
  Trace trace(0, {.first_step = 3, .steps = 2});
  trace.Add({.name = "before any step"});
  for (int64_t step = 0; step < 8; ++step) {
    trace.BeginStep(step);
    EXPECT_EQ(trace.enabled(), step == 3 || step == 4);
    trace.Add({.name = std::to_string(step)});
  }
  EXPECT_THAT(Names(trace), ElementsAre("3", "4"));
}

TEST(TraceTest, KeepsMemoryInItsWindowOnly) {
  Trace trace(0, {.first_step = 1, .steps = 2});
  for (int64_t step = 0; step < 4; ++step) {
    trace.BeginStep(step);
    trace.AddMemory({{.nanos = step, .live_bytes = {64 * step}}});
  }
  const std::vector<MemorySample> memory = trace.Record().memory;
  ASSERT_EQ(memory.size(), 2u);
  EXPECT_EQ(memory[0].nanos, 1);
  EXPECT_EQ(memory[1].live_bytes[0], 128);
}

TEST(TraceTest, AnEmptyWindowKeepsNothing) {
  Trace trace(0, {.first_step = 0, .steps = 0});
  trace.BeginStep(0);
  trace.Add({.name = "event"});
  EXPECT_THAT(trace.Record().events, IsEmpty());
}

// The threads of a rank add while its steps go on; ThreadSanitizer watches.
TEST(TraceTest, ThreadsAddTogether) {
  Trace trace(0, {.first_step = 0, .steps = 1000});
  trace.BeginStep(0);
  std::vector<std::thread> threads;
  for (const TraceTrack track : {TraceTrack::kCommunication, TraceTrack::kData}) {
    threads.emplace_back([&trace, track] {
      for (int i = 0; i < 500; ++i) trace.Add({.name = "work", .track = track});
    });
  }
  for (int64_t step = 1; step < 1000; ++step) {
    trace.BeginStep(step);
    if (step % 100 != 0) continue;
    EXPECT_LE(trace.Record().events.size(), 1000u);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(trace.Record().events.size(), 1000u);
}

}  // namespace
}  // namespace lockstep
