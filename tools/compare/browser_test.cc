// A whole comparison, opened in Chromium. Carries the tag "browser" (.bazelrc).

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/compare/comparison.h"
#include "tools/compare/report.h"
#include "tools/report/html.h"
#include "tools/report/testing/chart_pixels.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

// A step of a millisecond in which every rank does all there is to do.
StepTrace Traced(int64_t ranks) {
  StepTrace trace = {.step = 4, .seconds = 1e-3, .ranks = {}};
  for (int64_t rank = 0; rank < ranks; ++rank) {
    trace.ranks.push_back({.phases = {{&kBubbleWork, -1, 0, 1e-4},
                                      {&kForwardWork, rank, 1e-4, 4e-4},
                                      {&kBackwardWork, rank, 4e-4, 8e-4},
                                      {&kOptimizerWork, -1, 9e-4, 1e-3}},
                           .calls = {{"all_reduce gradients", 4096, 6e-4, 8.5e-4},
                                     {"all_reduce loss", 8, 8.5e-4, 9e-4}},
                           .memory = {{0, {{"parameters", 4096}, {"activations", 0}}},
                                      {4e-4, {{"parameters", 4096}, {"activations", 8192}}},
                                      {8e-4, {{"parameters", 4096}, {"activations", 0}}}}});
  }
  return trace;
}

RunRecord MakeRun(const std::string& strategy, int64_t ranks) {
  RunRecord run;
  run.state = RunRecord::State::kComplete;
  run.workload = "gpt";
  run.strategy = strategy;
  run.directory = "/runs/" + strategy + std::to_string(ranks);
  run.ranks = ranks;
  run.shards = 4;
  run.micro_batches = 1;
  run.unit = "tokens";
  run.units_per_second = 1000.0 * static_cast<double>(ranks);
  for (int64_t step = 0; step < 40; ++step) {
    run.losses.push_back({step, 2 * std::exp(-0.1 * static_cast<double>(step))});
    run.loss_scales.push_back(step < 20 ? 65536 : 32768);
  }
  run.time = {{"forward", 0.1}, {"backward", 0.2}, {"communication_exposed", 0.05}};
  for (int64_t rank = 0; rank < ranks; ++rank) {
    run.per_rank.push_back(
        {.memory_peak = 12288, .memory_at_peak = {{"parameters", 4096}, {"activations", 8192}}});
  }
  run.step_trace = Traced(ranks);
  return run;
}

TEST(ComparisonInABrowserTest, EveryChartDrawsAllItsSeries) {
  RunRecord tp = MakeRun("tp", 2), failed = MakeRun("fsdp", 2);
  tp.units_per_second = 1500;  // a point of its own
  for (LossPoint& point : tp.losses) point.loss *= 1 + 1e-6 * static_cast<double>(point.step);
  failed.state = RunRecord::State::kUnfinished;
  failed.losses.resize(20);
  for (LossPoint& point : failed.losses) point.loss += 0.5;
  const std::string page = HtmlOf(ComparisonReport(
      CompareRuns({MakeRun("single", 1), MakeRun("ddp", 2), MakeRun("ddp", 4), tp, failed})));
  const auto pixels = ChartPixels(page);
  ASSERT_TRUE(pixels.ok()) << pixels.status();
  EXPECT_EQ(BlankSeries(*pixels), "");
  std::vector<std::string> charts;
  for (const auto& entry : *pixels) charts.push_back(entry.first);
  EXPECT_THAT(charts,
              ElementsAre("gpt-0-single-memory-over-time", "gpt-0-single-timeline",
                          "gpt-1-ddp__ddp2_-memory-over-time", "gpt-1-ddp__ddp2_-timeline",
                          "gpt-2-ddp__ddp4_-memory-over-time", "gpt-2-ddp__ddp4_-timeline",
                          "gpt-3-tp-memory-over-time", "gpt-3-tp-timeline", "gpt-difference",
                          "gpt-loss", "gpt-memory", "gpt-scale", "gpt-throughput", "gpt-time"));
}

}  // namespace
}  // namespace lockstep
