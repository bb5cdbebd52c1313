#include "core/report/chrome_trace.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/file.h"
#include "core/report/testing/trace_check.h"
#include "core/report/trace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Json = nlohmann::json;

// Traces of several ranks, and the file made from them.
class ChromeTraceTest : public testing::Test {
 protected:
  Trace& AddRank(int rank) {
    traces_.push_back(std::make_unique<Trace>(rank, TraceWindow{.first_step = 0, .steps = 1}));
    traces_.back()->BeginStep(0);
    return *traces_.back();
  }

  // The members of `traceEvents`.
  Json Written() {
    std::vector<TraceRecord> records;
    for (const auto& trace : traces_) records.push_back(trace->Record());
    std::vector<const TraceRecord*> traces;
    for (const TraceRecord& record : records) traces.push_back(&record);
    const std::string path = testing::TempDir() + "/chrome_trace_test.json";
    EXPECT_EQ(WriteChromeTrace(path, traces), absl::OkStatus());
    const std::string text = ReadFile(path).value();
    EXPECT_EQ(TraceFault(text), "");
    return Json::parse(text).at("traceEvents");
  }

  // The events of one phase: "X" complete, "M" metadata, "s" "t" "f" flow.
  static std::vector<Json> OfPhase(const Json& events, const std::string& phase) {
    std::vector<Json> found;
    for (const Json& event : events) {
      if (event.at("ph") == phase) found.push_back(event);
    }
    return found;
  }

  // The names that the metadata `what` gives, by process, or by process and thread.
  static std::map<std::pair<int, int>, std::string> NamesBy(const Json& events,
                                                            const std::string& what) {
    std::map<std::pair<int, int>, std::string> names;
    for (const Json& event : OfPhase(events, "M")) {
      if (event.at("name") != what) continue;
      names[{event.at("pid").get<int>(), event.at("tid").get<int>()}] =
          event.at("args").at("name").get<std::string>();
    }
    return names;
  }

  std::vector<std::unique_ptr<Trace>> traces_;
};

TEST_F(ChromeTraceTest, ShowsAProcessARankAndAThreadATrack) {
  Trace& zero = AddRank(0);
  zero.Add(
      {.name = "forward", .start_nanos = 5'000'000, .duration_nanos = 1'500, .micro_batch = 2});
  zero.Add({.name = "load \"x\"\n\xff",
            .track = TraceTrack::kData,
            .start_nanos = 5'000'001,
            .duration_nanos = 10'000});
  Trace& three = AddRank(3);
  three.Add({.name = "all_reduce",
             .track = TraceTrack::kCommunication,
             .start_nanos = 4'999'000,
             .duration_nanos = 2,
             .bytes = 4096,
             .sequence = 11,
             .detail = "'dp' [0, 3]"});

  const Json events = Written();
  EXPECT_THAT(NamesBy(events, "process_name"),
              UnorderedElementsAre(std::pair(std::pair(0, 0), "rank 0"),
                                   std::pair(std::pair(3, 3), "rank 3")));
  const auto threads = NamesBy(events, "thread_name");
  ASSERT_EQ(threads.size(), 4u);
  const std::vector<Json> complete = OfPhase(events, "X");
  ASSERT_EQ(complete.size(), 3u);

  EXPECT_EQ(complete[0].at("name"), "forward");
  EXPECT_EQ(complete[0].at("pid"), 0);
  EXPECT_EQ(complete[0].at("ts").get<double>(), 1.0);  // microseconds after the earliest event
  EXPECT_EQ(complete[0].at("dur").get<double>(), 1.5);
  EXPECT_EQ(complete[0].at("args"), Json({{"micro_batch", 2}}));
  EXPECT_EQ(threads.at({0, complete[0].at("tid").get<int>()}), "compute");

  EXPECT_EQ(complete[1].at("name"), "load \"x\"\n\xEF\xBF\xBD");
  EXPECT_DOUBLE_EQ(complete[1].at("ts").get<double>(), 1.001);
  EXPECT_EQ(threads.at({0, complete[1].at("tid").get<int>()}), "data");

  EXPECT_EQ(complete[2].at("pid"), 3);
  EXPECT_EQ(complete[2].at("ts").get<double>(), 0.0);
  EXPECT_DOUBLE_EQ(complete[2].at("dur").get<double>(), 0.002);
  EXPECT_EQ(complete[2].at("args"),
            Json({{"bytes", 4096}, {"sequence", 11}, {"detail", "'dp' [0, 3]"}}));
  EXPECT_EQ(threads.at({3, complete[2].at("tid").get<int>()}), "communication");
}

// Slices of one thread of the format must nest; calls in flight together do not.
TEST_F(ChromeTraceTest, CallsInFlightTogetherGetThreadsOfTheirOwn) {
  Trace& trace = AddRank(0);
  const auto add = [&](const char* name, int64_t start_micros, int64_t micros) {
    trace.Add({.name = name,
               .track = TraceTrack::kCommunication,
               .start_nanos = 1000 * start_micros,
               .duration_nanos = 1000 * micros});
  };
  add("c", 150, 100);
  add("a", 0, 100);
  add("b", 50, 100);
  add("d", 160, 10);
  add("e", 251, 10);
  add("f", 261, 10);  // as soon as e is over
  std::map<std::string, std::string> thread_of;
  const Json events = Written();
  const auto threads = NamesBy(events, "thread_name");
  for (const Json& event : OfPhase(events, "X")) {
    thread_of[event.at("name").get<std::string>()] = threads.at({0, event.at("tid").get<int>()});
  }
  EXPECT_THAT(thread_of, UnorderedElementsAre(
                             std::pair("a", "communication"), std::pair("b", "communication 2"),
                             std::pair("c", "communication"), std::pair("d", "communication 2"),
                             std::pair("e", "communication"), std::pair("f", "communication 2")));
}

TEST_F(ChromeTraceTest, MemoryIsACounterOfEachRank) {
  Trace& zero = AddRank(0);
  zero.Add({.name = "forward", .start_nanos = 5'000, .duration_nanos = 1'000});
  zero.AddMemory({{.nanos = 5'500, .live_bytes = {64, 128}}, {.nanos = 6'000, .live_bytes = {64}}});
  AddRank(1).AddMemory({{.nanos = 4'000, .live_bytes = {32}}});
  const std::vector<Json> counters = OfPhase(Written(), "C");
  ASSERT_EQ(counters.size(), 3u);
  EXPECT_EQ(counters[0].at("name"), "memory");
  EXPECT_EQ(counters[0].at("pid"), 0);
  EXPECT_EQ(counters[0].at("ts").get<double>(), 1.5);
  EXPECT_EQ(counters[0].at("args").at("parameters"), 64);
  EXPECT_EQ(counters[0].at("args").at("gradients"), 128);
  EXPECT_EQ(counters[0].at("args").size(), static_cast<size_t>(kMemoryClasses));
  EXPECT_EQ(counters[1].at("args").at("gradients"), 0);
  EXPECT_EQ(counters[2].at("pid"), 1);
  EXPECT_EQ(counters[2].at("ts").get<double>(), 0.0);
}

TEST_F(ChromeTraceTest, ArrowsJoinTheMembersOfACollective) {
  const auto call = [](int64_t start, const std::string& flow) {
    return TraceEvent{.name = "all_reduce",
                      .track = TraceTrack::kCommunication,
                      .start_nanos = start,
                      .duration_nanos = 500,
                      .flow = flow};
  };
  Trace& zero = AddRank(0);
  Trace& one = AddRank(1);
  Trace& two = AddRank(2);
  zero.Add(call(2'000, "dp 1"));
  one.Add(call(1'000, "dp 1"));
  two.Add(call(3'000, "dp 1"));
  zero.Add(call(9'000, "dp 2"));
  one.Add(call(9'500, "dp 2"));
  two.Add(call(9'000, "its partners are outside the window"));

  const Json events = Written();
  const auto describe = [](const Json& event) {
    return std::to_string(event.at("id").get<int>()) + ": rank " +
           std::to_string(event.at("pid").get<int>()) + " at " +
           std::to_string(event.at("ts").get<double>());
  };
  std::vector<std::string> starts, passes, finishes;
  for (const Json& event : OfPhase(events, "s")) starts.push_back(describe(event));
  for (const Json& event : OfPhase(events, "t")) passes.push_back(describe(event));
  for (const Json& event : OfPhase(events, "f")) finishes.push_back(describe(event));
  EXPECT_THAT(starts, ElementsAre("1: rank 1 at 0.000000", "2: rank 0 at 8.000000"));
  EXPECT_THAT(passes, ElementsAre("1: rank 0 at 1.000000"));
  EXPECT_THAT(finishes, ElementsAre("1: rank 2 at 2.000000", "2: rank 1 at 8.500000"));
}

// A receiver that waits long before its message is sent is still where the arrow arrives.
TEST_F(ChromeTraceTest, ArrowsOfMessagesPointToTheReceiver) {
  AddRank(0).Add({.name = "recv activations",
                  .track = TraceTrack::kCommunication,
                  .start_nanos = 0,
                  .duration_nanos = 9'000,
                  .flow = "1 to 0, 7",
                  .flow_end = FlowEnd::kTarget});
  AddRank(1).Add({.name = "send activations",
                  .track = TraceTrack::kCommunication,
                  .start_nanos = 5'000,
                  .duration_nanos = 4'000,
                  .flow = "1 to 0, 7",
                  .flow_end = FlowEnd::kSource});
  const Json events = Written();
  const std::vector<Json> starts = OfPhase(events, "s");
  const std::vector<Json> finishes = OfPhase(events, "f");
  ASSERT_EQ(starts.size(), 1u);
  ASSERT_EQ(finishes.size(), 1u);
  EXPECT_EQ(starts[0].at("pid"), 1);
  EXPECT_EQ(starts[0].at("ts").get<double>(), 5.0);
  EXPECT_EQ(finishes[0].at("pid"), 0);
  EXPECT_DOUBLE_EQ(finishes[0].at("ts").get<double>(), 8.999) << "must lie inside the event";
  EXPECT_EQ(finishes[0].at("bp"), "e");
  EXPECT_EQ(starts[0].at("id"), finishes[0].at("id"));
  EXPECT_EQ(starts[0].at("cat"), finishes[0].at("cat"));
}

// Readers cut what is behind the nanosecond: neighbours must neither overlap nor lose one.
TEST_F(ChromeTraceTest, NanosecondsSurvive) {
  Trace& trace = AddRank(0);
  constexpr int64_t kLong = 7'000'000'001;  // two hours in, the doubles are coarser
  std::vector<int64_t> starts;
  for (int64_t nanos = 0; nanos < 1000; ++nanos) starts.push_back(nanos);
  for (int64_t nanos = 0; nanos < 1000; ++nanos) starts.push_back(1'000 * kLong + nanos);
  for (const int64_t start : starts) {
    trace.Add({.name = "instant", .start_nanos = start, .duration_nanos = 1});
  }
  const std::vector<Json> events = OfPhase(Written(), "X");
  ASSERT_EQ(events.size(), starts.size());
  for (size_t i = 0; i < starts.size(); ++i) {
    EXPECT_EQ(static_cast<int64_t>(events[i].at("ts").get<double>() * 1000), starts[i]);
  }
}

TEST_F(ChromeTraceTest, NoEventsGiveAnEmptyPicture) {
  EXPECT_THAT(Written(), IsEmpty());
  AddRank(0);
  EXPECT_THAT(OfPhase(Written(), "X"), IsEmpty());
}

TEST_F(ChromeTraceTest, ErrorsNameThePath) {
  const std::string path = testing::TempDir() + "/chrome_trace_test.missing/trace.json";
  EXPECT_THAT(std::string(WriteChromeTrace(path, {}).message()), HasSubstr(path));
}

}  // namespace
}  // namespace lockstep
