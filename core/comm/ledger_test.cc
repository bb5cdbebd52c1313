#include "core/comm/ledger.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using State = LedgerEntry::State;

std::shared_ptr<const GroupInfo> Group() {
  return std::make_shared<const GroupInfo>(GroupInfo{.name = "dp", .members = {0, 2}, .rank = 1});
}

Signature AllReduce(int64_t count) {
  return {.operation = Operation::kAllReduce, .dtype = DType::kF32, .count = count, .counts = {}};
}
Signature Barrier() { return {}; }

// Enters a call that took 100 ns, and returns its id.
int64_t Record(Ledger& ledger, int64_t sequence, const Signature& signature,
               const std::string& label) {
  const int64_t id = ledger.Begin(Group(), sequence, signature, label);
  ledger.Finish(id, State::kDone, ledger.Recent().back().start_nanos + 100);
  return id;
}

TEST(LedgerTest, AddsUpByOperationAndLabel) {
  Ledger ledger(2);
  Record(ledger, 0, AllReduce(10), "gradients");
  const int64_t id = Record(ledger, 1, AllReduce(30), "gradients");
  ledger.AddExposed(id, 40);
  Record(ledger, 2, AllReduce(1), "overflow");
  Record(ledger, 3, Barrier(), "gradients");

  const CommTotals totals = ledger.Mark();
  const CommTotal gradients = totals.Of(Operation::kAllReduce, "gradients");
  EXPECT_EQ(gradients.calls, 2);
  EXPECT_EQ(gradients.bytes, 160);
  EXPECT_EQ(gradients.wire_bytes, 160);  // 2 (n-1)/n is 1 for two ranks
  EXPECT_EQ(gradients.busy_nanos, 200);
  EXPECT_EQ(gradients.exposed_nanos, 40);
  EXPECT_EQ(totals.Of(Operation::kAllReduce).calls, 3);
  EXPECT_EQ(totals.Of("gradients").calls, 3);
  EXPECT_EQ(totals.All().calls, 4);
  EXPECT_EQ(totals.All().bytes, 164);
  EXPECT_EQ(totals.Of("nothing").calls, 0);
}

TEST(LedgerTest, SinceAMark) {
  Ledger ledger(0);
  Record(ledger, 0, AllReduce(10), "gradients");
  Record(ledger, 1, Barrier(), "step");
  const CommTotals mark = ledger.Mark();
  EXPECT_TRUE(ledger.Since(mark).by_kind.empty());
  Record(ledger, 2, AllReduce(5), "gradients");
  const CommTotals since = ledger.Since(mark);
  EXPECT_THAT(since.by_kind, SizeIs(1));
  EXPECT_EQ(since.Of("gradients").bytes, 20);
}

TEST(LedgerTest, CallsInFlightTogetherCountOnce) {
  Ledger ledger(0);
  const auto begin = [&ledger](int64_t sequence) {
    return ledger.Begin(Group(), sequence, AllReduce(1), "gradients");
  };
  const int64_t first = begin(0), second = begin(1);
  const int64_t start = ledger.Recent()[0].start_nanos;
  const int64_t other_start = ledger.Recent()[1].start_nanos;
  ledger.Finish(second, State::kDone, start + 1'000'000'000);  // the later end comes first
  EXPECT_EQ(ledger.Mark().in_flight_nanos, 0);
  ledger.Finish(first, State::kDone, start + 400'000'000);
  EXPECT_EQ(ledger.Mark().in_flight_nanos, 1'000'000'000);
  EXPECT_EQ(ledger.Mark().All().busy_nanos, 1'400'000'000 - (other_start - start));

  const CommTotals mark = ledger.Mark();
  Record(ledger, 2, AllReduce(1), "gradients");
  EXPECT_EQ(ledger.Since(mark).in_flight_nanos, 100);
}

TEST(LedgerTest, FailedCallsAndCallsInFlightDoNotCount) {
  Ledger ledger(0);
  const int64_t failed = ledger.Begin(Group(), 0, AllReduce(10), "gradients");
  ledger.Begin(Group(), 1, AllReduce(10), "gradients");
  ledger.Finish(failed, State::kFailed, 1);
  EXPECT_EQ(ledger.Mark().All().calls, 0);
  const std::vector<LedgerEntry> entries = ledger.Recent();
  ASSERT_THAT(entries, SizeIs(2));
  EXPECT_EQ(entries[0].state, State::kFailed);
  EXPECT_EQ(entries[1].state, State::kInFlight);
}

TEST(LedgerTest, KeepsTheRecentEntriesAndThoseInFlight) {
  Ledger ledger(0, 3);
  for (int i = 0; i < 10; ++i) Record(ledger, i, AllReduce(1), "gradients");
  ASSERT_THAT(ledger.Recent(), SizeIs(3));
  EXPECT_EQ(ledger.Recent().front().sequence, 7);
  EXPECT_EQ(ledger.Mark().All().calls, 10);

  const int64_t open = ledger.Begin(Group(), 10, AllReduce(1), "gradients");
  for (int i = 11; i < 20; ++i) Record(ledger, i, AllReduce(1), "gradients");
  EXPECT_EQ(ledger.Recent().front().sequence, 10);
  ledger.Finish(open, State::kDone, 1'000);
  EXPECT_THAT(ledger.Recent(), SizeIs(3));
  ledger.AddExposed(open, 5);  // forgotten, which is no harm
  EXPECT_EQ(ledger.Mark().All().calls, 20);
}

TEST(LedgerTest, TraceKeepsAWindow) {
  Ledger ledger(0, 3);
  for (int i = 0; i < 5; ++i) Record(ledger, i, AllReduce(1), "gradients");
  ledger.StartTrace();
  for (int i = 5; i < 25; ++i) Record(ledger, i, AllReduce(1), "gradients");
  const std::vector<LedgerEntry> window = ledger.StopTrace();
  ASSERT_THAT(window, SizeIs(20));
  EXPECT_EQ(window.front().sequence, 5);
  EXPECT_EQ(window.back().sequence, 24);
  EXPECT_THAT(ledger.Recent(), SizeIs(3));
  EXPECT_TRUE(ledger.StopTrace().empty());
}

TEST(LedgerTest, DescribesTheLastCall) {
  Ledger ledger(0);
  EXPECT_EQ(ledger.DescribeLast(), "no call yet");
  const int64_t id = ledger.Begin(Group(), 11, AllReduce(1024), "gradients");
  const std::string call = "all_reduce #11 of 'dp' [0, 2] (f32 x 1024, sum, \"gradients\")";
  EXPECT_THAT(ledger.DescribeLast(), HasSubstr(call + ", in flight for "));
  ledger.Finish(id, State::kDone, ledger.Recent().back().start_nanos);
  EXPECT_THAT(ledger.DescribeLast(), HasSubstr(call + ", done "));
  const int64_t failed = ledger.Begin(Group(), 12, Barrier(), "end");
  ledger.Finish(failed, State::kFailed, ledger.Recent().back().start_nanos);
  EXPECT_THAT(ledger.DescribeLast(), HasSubstr("barrier #12 of 'dp' [0, 2] (\"end\"), failed "));
}

TEST(LedgerTest, PostMortem) {
  Ledger ledger(3);
  Record(ledger, 0, AllReduce(256), "gradients");
  ledger.Begin(Group(), 1, AllReduce(1), "odd \"label\"");

  const std::string text = ledger.ToText();
  EXPECT_THAT(text, HasSubstr("rank 3"));
  EXPECT_THAT(text, HasSubstr("1.0 KiB"));
  EXPECT_THAT(text, HasSubstr("in flight"));

  const nlohmann::json json = nlohmann::json::parse(ledger.ToJson());
  EXPECT_EQ(json["rank"], 3);
  ASSERT_EQ(json["totals"].size(), 1u);
  EXPECT_EQ(json["totals"][0]["operation"], "all_reduce");
  EXPECT_EQ(json["totals"][0]["bytes"], 1024);
  ASSERT_EQ(json["calls"].size(), 2u);
  EXPECT_EQ(json["calls"][0]["state"], "done");
  EXPECT_EQ(json["calls"][0]["members"], (std::vector<int>{0, 2}));
  EXPECT_EQ(json["calls"][1]["state"], "in flight");
  EXPECT_EQ(json["calls"][1]["label"], "odd \"label\"");
}

}  // namespace
}  // namespace lockstep
