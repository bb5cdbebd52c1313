#include "core/report/rank_report.h"

#include <vector>

#include "core/comm/launch.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

RankReport Example(int rank) {
  RankReport report;
  report.trace = {.rank = rank,
                  .events = {{.name = "forward", .start_nanos = 5, .duration_nanos = 7},
                             {.name = "all_reduce",
                              .track = TraceTrack::kCommunication,
                              .bytes = 64,
                              .sequence = 3,
                              .detail = "'dp' [0, 1]",
                              .flow = "dp 3",
                              .flow_end = FlowEnd::kSource}},
                  .memory = {{.nanos = 6, .live_bytes = {64, 128}}}};
  report.idle_traces = {{.rank = 7, .events = {{.name = "step 2"}}}};
  report.times.total = 100 + rank;
  report.times.phases[2] = 30;
  report.measured_steps = 4;
  report.median_step_seconds = 0.25;
  report.kernel_nanos = 90;
  report.memory.Add(MemoryClass::kParameters, 1000);
  report.memory.Remove(MemoryClass::kParameters, 400);
  report.traffic.in_flight_nanos = 12;
  report.traffic.by_kind[{Operation::kAllReduce, "gradients"}] = {.calls = 2, .wire_bytes = 1.5};
  report.steps = 6;
  report.steps_behind = 8;
  report.slow_ranks = {
      {.windows = 3, .worst = {.step = 19, .rank = 1, .part = Phase::kData, .factor = 2.5}}};
  report.changes = {{.steps = 5, .from = "ddp", .to = "fsdp", .seconds = 0.5, .planned_bytes = 64}};
  report.prediction.traffic = {{Operation::kAllReduce, "gradients", 8.0}};
  report.prediction.memory = {{MemoryClass::kGradients, 77}};
  report.prediction.bubble_fraction = 0.5;
  report.profiles = {{.nanos = 3}, {.nanos = 4, .activation_bytes = 5, .parameter_bytes = 6}};
  report.losses = {2.5, 1.5};
  report.validation_at_start = ValidationResult{.loss = 2.25, .accuracy = 0.125};
  report.validation = {.loss = 1.25, .accuracy = 0.75};
  report.parameter_hash = "0123456789abcdef";
  return report;
}

void ExpectExample(const RankReport& report, int rank) {
  EXPECT_EQ(report.trace.rank, rank);
  const std::vector<TraceEvent>& events = report.trace.events;
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].name, "forward");
  EXPECT_EQ(events[0].duration_nanos, 7);
  EXPECT_EQ(events[1].track, TraceTrack::kCommunication);
  EXPECT_EQ(events[1].bytes, 64);
  EXPECT_EQ(events[1].sequence, 3);
  EXPECT_EQ(events[1].detail, "'dp' [0, 1]");
  EXPECT_EQ(events[1].flow, "dp 3");
  EXPECT_EQ(events[1].flow_end, FlowEnd::kSource);
  ASSERT_EQ(report.trace.memory.size(), 1u);
  EXPECT_EQ(report.trace.memory[0].nanos, 6);
  EXPECT_EQ(report.trace.memory[0].live_bytes[1], 128);
  ASSERT_EQ(report.idle_traces.size(), 1u);
  EXPECT_EQ(report.idle_traces[0].rank, 7);
  ASSERT_EQ(report.idle_traces[0].events.size(), 1u);
  EXPECT_EQ(report.idle_traces[0].events[0].name, "step 2");
  EXPECT_EQ(report.steps_behind, 8);
  ASSERT_EQ(report.slow_ranks.size(), 1u);
  EXPECT_EQ(report.slow_ranks[0].windows, 3);
  EXPECT_EQ(report.slow_ranks[0].worst.part, Phase::kData);
  EXPECT_EQ(report.slow_ranks[0].worst.factor, 2.5);
  ASSERT_EQ(report.changes.size(), 1u);
  EXPECT_EQ(report.changes[0].to, "fsdp");
  EXPECT_EQ(report.changes[0].planned_bytes, 64);
  EXPECT_EQ(report.times.total, 100 + rank);
  EXPECT_EQ(report.times.phases[2], 30);
  EXPECT_EQ(report.measured_steps, 4);
  EXPECT_EQ(report.median_step_seconds, 0.25);
  EXPECT_EQ(report.kernel_nanos, 90);
  EXPECT_EQ(report.memory.live(MemoryClass::kParameters), 600);
  EXPECT_EQ(report.memory.peak(MemoryClass::kParameters), 1000);
  EXPECT_EQ(report.memory.at_peak(MemoryClass::kParameters), 1000);
  EXPECT_EQ(report.traffic.in_flight_nanos, 12);
  EXPECT_EQ(report.traffic.Of(Operation::kAllReduce, "gradients").calls, 2);
  EXPECT_EQ(report.traffic.Of("gradients").wire_bytes, 1.5);
  EXPECT_EQ(report.steps, 6);
  ASSERT_EQ(report.prediction.traffic.size(), 1u);
  EXPECT_EQ(report.prediction.traffic[0].operation, Operation::kAllReduce);
  EXPECT_EQ(report.prediction.traffic[0].label, "gradients");
  EXPECT_EQ(report.prediction.traffic[0].wire_bytes, 8.0);
  ASSERT_EQ(report.prediction.memory.size(), 1u);
  EXPECT_EQ(report.prediction.memory[0].bytes, 77);
  EXPECT_EQ(report.prediction.bubble_fraction, 0.5);
  ASSERT_EQ(report.profiles.size(), 2u);
  EXPECT_EQ(report.profiles[0].nanos, 3);
  EXPECT_EQ(report.profiles[1].parameter_bytes, 6);
  EXPECT_EQ(report.losses, (std::vector<double>{2.5, 1.5}));
  ASSERT_TRUE(report.validation_at_start.has_value());
  EXPECT_EQ(report.validation_at_start->loss, 2.25);
  EXPECT_EQ(report.validation_at_start->accuracy, 0.125);
  EXPECT_EQ(report.validation.loss, 1.25);
  EXPECT_EQ(report.validation.accuracy, 0.75);
  EXPECT_EQ(report.parameter_hash, "0123456789abcdef");
}

TEST(RankReportTest, ComesBackAsItWas) {
  const auto report = DecodeRankReport(Encode(Example(2)));
  ASSERT_TRUE(report.ok()) << report.status();
  ExpectExample(*report, 2);
}

TEST(RankReportTest, CutBytesAreRefused) {
  const std::vector<std::byte> bytes = Encode(Example(0));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(DecodeRankReport(absl::MakeConstSpan(bytes).first(size)).ok()) << size;
  }
}

TEST(RankReportTest, KeepsTheTracesOfIdleRanks) {
  std::vector<RankReport> reports(4);
  for (int rank = 0; rank < 4; ++rank) reports[rank].trace.rank = rank;
  reports[0].trace.events = reports[2].trace.events = {{.name = "step 2"}};
  KeepLastLeg(2, reports);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].trace.events.size(), 1u);
  ASSERT_EQ(reports[0].idle_traces.size(), 1u);  // rank 3 was idle when the others traced
  EXPECT_EQ(reports[0].idle_traces[0].rank, 2);
  EXPECT_EQ(reports[0].idle_traces[0].events[0].name, "step 2");
}

TEST(RankReportTest, RankZeroGetsAll) {
  const absl::Status status = RunRanks(3, {}, [](RankHandle& handle) -> absl::Status {
    const auto reports = GatherReports(handle, Example(handle.rank()));
    EXPECT_TRUE(reports.ok()) << reports.status();
    EXPECT_EQ(reports->size(), handle.rank() == 0 ? 3u : 0u);
    for (size_t i = 0; i < reports->size(); ++i) ExpectExample((*reports)[i], static_cast<int>(i));
    return reports.status();
  });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace lockstep
