#include "core/report/testing/trace_check.h"

#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// Rank 0 sends to rank 1, while both compute.
constexpr char kTrace[] = R"({"traceEvents": [
  {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "rank 0"}},
  {"ph": "M", "name": "process_sort_index", "pid": 0, "tid": 0, "args": {"sort_index": 0}},
  {"ph": "M", "name": "process_name", "pid": 1, "tid": 1, "args": {"name": "rank 1"}},
  {"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": "compute"}},
  {"ph": "M", "name": "thread_name", "pid": 0, "tid": 10, "args": {"name": "communication"}},
  {"ph": "M", "name": "thread_name", "pid": 1, "tid": 11, "args": {"name": "communication"}},
  {"ph": "X", "name": "step 0", "cat": "compute", "pid": 0, "tid": 0, "ts": 0, "dur": 9.5,
   "args": {}},
  {"ph": "X", "name": "forward", "cat": "compute", "pid": 0, "tid": 0, "ts": 1, "dur": 2,
   "args": {}},
  {"ph": "X", "name": "backward", "cat": "compute", "pid": 0, "tid": 0, "ts": 3, "dur": 6.5,
   "args": {}},
  {"ph": "C", "name": "memory", "cat": "memory", "pid": 0, "tid": 0, "ts": 1,
   "args": {"parameters": 5}},
  {"ph": "C", "name": "memory", "cat": "memory", "pid": 0, "tid": 0, "ts": 2,
   "args": {"parameters": 0}},
  {"ph": "X", "name": "send x", "cat": "communication", "pid": 0, "tid": 10, "ts": 4, "dur": 3,
   "args": {}},
  {"ph": "X", "name": "recv x", "cat": "communication", "pid": 1, "tid": 11, "ts": 2, "dur": 5,
   "args": {}},
  {"ph": "s", "name": "flow", "cat": "flow", "id": 1, "pid": 0, "tid": 10, "ts": 4},
  {"ph": "f", "name": "flow", "cat": "flow", "id": 1, "pid": 1, "tid": 11, "ts": 6, "bp": "e"}
]})";
constexpr int kForward = 7, kBackward = 8, kFirstSample = 9, kSecondSample = 10, kSend = 11,
              kStart = 13, kEnd = 14;

std::string FaultWith(const std::function<void(Json& events)>& change) {
  Json document = Json::parse(kTrace);
  change(document.at("traceEvents"));
  return TraceFault(document.dump());
}

// With one member of one event set to something else.
std::string FaultWith(int event, const char* member, const Json& value) {
  return FaultWith([&](Json& events) { events[event][member] = value; });
}

TEST(TraceCheckTest, FindsNothingWhereNothingIs) { EXPECT_EQ(TraceFault(kTrace), ""); }

TEST(TraceCheckTest, ItMustBeATrace) {
  EXPECT_NE(TraceFault("{"), "");
  EXPECT_NE(TraceFault("{}"), "");
  EXPECT_NE(TraceFault(R"({"traceEvents": [{}]})"), "");
  EXPECT_THAT(FaultWith(kForward, "ph", "Y"), HasSubstr("unknown kind of event"));
}

TEST(TraceCheckTest, ProcessesAndThreadsHaveOneName) {
  EXPECT_THAT(FaultWith([](Json& events) { events.erase(0); }),
              HasSubstr("a process without a name"));
  EXPECT_THAT(FaultWith([](Json& events) { events.erase(4); }),
              HasSubstr("a thread without a name"));
  EXPECT_THAT(FaultWith([](Json& events) { events.insert(events.begin(), events[0]); }),
              HasSubstr("a process with two names"));
  EXPECT_THAT(FaultWith([](Json& events) { events.insert(events.begin(), events[3]); }),
              HasSubstr("a thread with two names"));
  EXPECT_THAT(FaultWith([](Json& events) { events.push_back(events[0]); }),
              HasSubstr("a name behind events"));
  EXPECT_THAT(FaultWith(5, "tid", 10), HasSubstr("a thread's number in two processes"));
}

TEST(TraceCheckTest, EventsOfAThreadNest) {
  EXPECT_THAT(FaultWith(kBackward, "dur", 6.501), HasSubstr("overlaps"));
  EXPECT_THAT(FaultWith(kForward, "dur", 2.001), HasSubstr("overlaps"));
  EXPECT_THAT(FaultWith(kBackward, "ts", 0.5), HasSubstr("before an earlier event"));
  EXPECT_THAT(FaultWith(kForward, "ts", -1), HasSubstr("negative time"));
}

TEST(TraceCheckTest, CallsOfALineAreApart) {
  const auto fault_of_next_send = [](double begin) {
    return FaultWith([begin](Json& events) {
      Json next = events[kSend];
      next["ts"] = begin;
      next["dur"] = 0.2;
      events.insert(events.begin() + kSend + 1, next);
    });
  };
  EXPECT_THAT(fault_of_next_send(7.2), HasSubstr("no microsecond behind another call"));
  EXPECT_EQ(fault_of_next_send(7.6), "");
}

TEST(TraceCheckTest, SamplesAreInOrderAndAlike) {
  EXPECT_THAT(FaultWith(kFirstSample, "ts", 3), HasSubstr("before an earlier sample"));
  EXPECT_THAT(FaultWith(kSecondSample, "args", {{"gradients", 1}}), HasSubstr("other series"));
  EXPECT_THAT(FaultWith(kFirstSample, "args", {{"parameters", "5"}}), HasSubstr("no amount"));
}

TEST(TraceCheckTest, ArrowsJoinCalls) {
  EXPECT_THAT(FaultWith(kEnd, "id", 2), HasSubstr("without start or end"));
  EXPECT_THAT(FaultWith(kEnd, "ph", "t"), HasSubstr("without start or end"));
  EXPECT_THAT(FaultWith(kEnd, "ts", 3), HasSubstr("back in time"));
  EXPECT_THAT(FaultWith(kEnd, "bp", "x"), HasSubstr("ends in the next event"));
  EXPECT_THAT(FaultWith(kEnd, "ts", 8), HasSubstr("touches no event"));
  EXPECT_THAT(FaultWith(kStart, "tid", 0), HasSubstr("no communication"));
  EXPECT_THAT(FaultWith(kSend, "name", "send y"), HasSubstr("between different calls"));
  // Two messages as one arrow.
  EXPECT_THAT(FaultWith([](Json& events) {
                Json step = events[kEnd];
                step["ph"] = "t";
                events.insert(events.begin() + kEnd, step);
              }),
              HasSubstr("within a process"));
}

}  // namespace
}  // namespace lockstep
