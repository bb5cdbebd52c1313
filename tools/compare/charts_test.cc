#include "tools/compare/charts.h"

#include <string>
#include <variant>
#include <vector>

#include "core/config/legs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/compare/comparison.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

RunRecord MakeRun(const std::string& strategy, int64_t ranks = 2) {
  RunRecord run;
  run.state = RunRecord::State::kComplete;
  run.workload = "w";
  run.strategy = strategy;
  run.directory = "/runs/" + strategy + std::to_string(ranks);
  run.ranks = ranks;
  run.shards = 2;
  run.micro_batches = 1;
  run.losses = {{0, 2.0}, {1, 1.0}};
  run.unit = "tokens";
  run.units_per_second = 100.0 * static_cast<double>(ranks);
  run.time = {{"forward", 0.1}, {"backward", 0.25}, {"communication_overlapped", 0.5}};
  run.per_rank = {{.memory_peak = 96, .memory_at_peak = {{"parameters", 64}, {"gradients", 32}}},
                  {.memory_peak = 64, .memory_at_peak = {{"parameters", 64}, {"gradients", 0}}}};
  return run;
}

std::vector<Chart> ChartsOf(const std::vector<RunRecord>& runs) {
  return ComparisonCharts(CompareRuns(runs)[0], "w");
}

std::vector<std::string> Ids(const std::vector<Chart>& charts) {
  std::vector<std::string> ids;
  for (const Chart& chart : charts) ids.push_back(chart.id);
  return ids;
}

template <typename Body>
const Body& BodyOf(const std::vector<Chart>& charts, const std::string& id) {
  for (const Chart& chart : charts) {
    if (chart.id == id) return std::get<Body>(chart.body);
  }
  ADD_FAILURE() << "no chart " << id;
  static const Body& none = *new Body();
  return none;
}

TEST(ComparisonChartsTest, CurvesLieOnEachOtherAndTheirDifferencesBelow) {
  RunRecord ddp = MakeRun("ddp"), tp = MakeRun("tp");
  tp.losses[1].loss = 0.75;
  const auto charts = ChartsOf({MakeRun("single"), ddp, tp});
  EXPECT_THAT(Ids(charts), ElementsAre("w-loss", "w-difference", "w-memory", "w-time"));
  const auto& losses = BodyOf<LineChart>(charts, "w-loss").lines;
  ASSERT_EQ(losses.size(), 3u);
  EXPECT_EQ(losses[0].style, LineChart::Style::kWide);
  EXPECT_EQ(losses[1].style, LineChart::Style::kInTurns);
  EXPECT_EQ(losses[2].style, LineChart::Style::kPlain);
  EXPECT_THAT(losses[2].points, ElementsAre(Pair(0, 2.0), Pair(1, 0.75)));
  const auto& differences = BodyOf<LineChart>(charts, "w-difference").lines;
  ASSERT_EQ(differences.size(), 2u);
  EXPECT_THAT(differences[0].points, ElementsAre(Pair(0, 0), Pair(1, 0)));
  EXPECT_THAT(differences[1].points, ElementsAre(Pair(0, 0), Pair(1, -0.25)));
  EXPECT_EQ(differences[1].colour, losses[2].colour);
}

TEST(ComparisonChartsTest, ARunThatFailedKeepsItsCurve) {
  RunRecord ddp = MakeRun("ddp");
  ddp.state = RunRecord::State::kUnfinished;
  auto charts = ChartsOf({MakeRun("single"), ddp});
  EXPECT_EQ(BodyOf<LineChart>(charts, "w-loss").lines[1].name, "ddp (failed)");
  EXPECT_EQ(BodyOf<BarChart>(charts, "w-time").rows.size(), 1u);
  ddp.state = RunRecord::State::kMissing;
  charts = ChartsOf({MakeRun("single"), ddp});
  EXPECT_EQ(BodyOf<LineChart>(charts, "w-loss").lines.size(), 1u);
}

TEST(ComparisonChartsTest, MemoryHasABarARank) {
  const auto charts = ChartsOf({MakeRun("ddp")});
  const auto& chart = BodyOf<BarChart>(charts, "w-memory");
  EXPECT_THAT(chart.rows, ElementsAre("ddp, rank 0", "ddp, rank 1"));
  ASSERT_EQ(chart.segments.size(), 2u);
  EXPECT_THAT(chart.segments[1].values, ElementsAre(32, 0));
}

TEST(ComparisonChartsTest, RanksThatAreAlikeShareABar) {
  RunRecord run = MakeRun("gpipe", 6);
  const RunRank first = run.per_rank[0], last = run.per_rank[1];
  run.per_rank = {first, first, last, last, last, first};
  EXPECT_THAT(BodyOf<BarChart>(ChartsOf({run}), "w-memory").rows,
              ElementsAre("gpipe, ranks 0 and 1", "gpipe, ranks 2 to 4", "gpipe, rank 5"));
}

// Layers may have different numbers of experts.
TEST(ComparisonChartsTest, ExpertsShareABarALayer) {
  RunRecord run = MakeRun("ddp");
  run.expert_load = {{.router = "a", .fractions = {0.25, 0.75}},
                     {.router = "b", .fractions = {0.5, 0.25, 0.25}}};
  const auto charts = ChartsOf({MakeRun("single"), run});
  const auto& chart = BodyOf<BarChart>(charts, "w-experts");
  EXPECT_THAT(chart.rows, ElementsAre("a", "b"));
  ASSERT_EQ(chart.segments.size(), 3u);
  EXPECT_EQ(chart.segments[2].name, "expert 2");
  EXPECT_THAT(chart.segments[0].values, ElementsAre(0.25, 0.5));
  EXPECT_THAT(chart.segments[2].values, ElementsAre(0, 0.25));
}

// What happened beside the others would make the bar longer than the step.
TEST(ComparisonChartsTest, TimeHasNoHiddenCommunication) {
  const auto charts = ChartsOf({MakeRun("ddp")});
  const auto& chart = BodyOf<BarChart>(charts, "w-time");
  ASSERT_EQ(chart.segments.size(), 2u);
  EXPECT_EQ(chart.segments[0].name, "forward");
  EXPECT_THAT(chart.segments[1].values, ElementsAre(0.25));
}

TEST(ComparisonChartsTest, ThroughputIsDrawnWhereSizesDiffer) {
  const auto charts = ChartsOf({MakeRun("single", 1), MakeRun("ddp", 2), MakeRun("ddp", 4)});
  const auto& lines = BodyOf<LineChart>(charts, "w-throughput").lines;
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].name, "ddp");
  EXPECT_EQ(lines[0].colour, 1) << "as in other charts";
  EXPECT_THAT(lines[0].points, ElementsAre(Pair(2, 200), Pair(4, 400)));
}

TEST(ComparisonChartsTest, ThroughputHasALineAKindOfMesh) {
  const auto run = [](const std::string& mesh, int64_t ranks) {
    RunRecord made = MakeRun("tp", ranks);
    made.mesh = mesh;
    return made;
  };
  const auto charts =
      ChartsOf({run("pp=1,dp=1,tp=1", 1), run("pp=1,dp=1,tp=2", 2), run("pp=1,dp=2,tp=2", 4),
                run("pp=1,dp=1,tp=4", 4), run("pp=1,dp=4,tp=2", 8)});
  const auto& lines = BodyOf<LineChart>(charts, "w-throughput").lines;
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].name, "tp (dp x tp)");
  EXPECT_THAT(lines[0].points, ElementsAre(Pair(1, 100), Pair(4, 400), Pair(8, 800)));
  EXPECT_EQ(lines[1].name, "tp (tp)");
  EXPECT_THAT(lines[1].points, ElementsAre(Pair(1, 100), Pair(2, 200), Pair(4, 400)));
}

TEST(ComparisonChartsTest, ARunWithLegsIsNoPointOfItsLastStrategy) {
  RunRecord legs = MakeRun("ddp", 4);
  legs.legs = {Leg::Parse("1: single").value(), Leg::Parse("1: ddp dp=4").value()};
  EXPECT_THAT(Ids(ChartsOf({MakeRun("ddp", 2), legs})), Not(Contains("w-throughput")));
}

TEST(ComparisonChartsTest, SizesOfDifferentKindsAreNoSeries) {
  RunRecord tp = MakeRun("tp", 2), both = MakeRun("tp", 4);
  tp.mesh = "pp=1,dp=1,tp=2";
  both.mesh = "pp=1,dp=2,tp=2";
  EXPECT_THAT(Ids(ChartsOf({tp, both})), Not(Contains("w-throughput")));
}

TEST(ComparisonChartsTest, LossScalesAreDrawnWhereThereAreAny) {
  RunRecord run = MakeRun("single");
  run.loss_scales = {1024, 512};
  const auto charts = ChartsOf({run, MakeRun("ddp")});
  const auto& chart = BodyOf<LineChart>(charts, "w-scale");
  EXPECT_TRUE(chart.y.logarithmic);
  ASSERT_EQ(chart.lines.size(), 1u);
  EXPECT_THAT(chart.lines[0].points, ElementsAre(Pair(0, 1024), Pair(1, 512)));
}

// Two ranks; the second has most memory, for an instant.
StepTrace Traced() {
  StepTrace trace = {.step = 4, .seconds = 1, .ranks = {}};
  trace.ranks.resize(2);
  trace.ranks[0].phases = {{&kForwardWork, 0, 0, 0.4}, {&kBackwardWork, 0, 0.4, 0.9}};
  trace.ranks[0].memory = {{0, {{"parameters", 50}}}};
  trace.ranks[1].phases = {{&kBubbleWork, -1, 0, 0.4}, {&kForwardWork, 1, 0.4, 0.8}};
  trace.ranks[1].calls = {{"all_reduce loss", 8, 0.8, 0.9}};
  trace.ranks[1].memory = {{0, {{"parameters", 10}, {"gradients", 0}}},
                           {0.5, {{"parameters", 10}, {"gradients", 0}}},
                           {0.5001, {{"parameters", 10}, {"gradients", 70}}},
                           {0.5002, {{"parameters", 10}, {"gradients", 5}}}};
  return trace;
}

ComparedRun TracedRun() {
  ComparedRun compared;
  compared.label = "ddp";
  compared.run.step_trace = Traced();
  return compared;
}

TEST(StepChartsTest, ShowsAllRanksWithTheirCalls) {
  const auto charts = StepCharts(TracedRun(), "r");
  const auto& chart = BodyOf<SpanChart>(charts, "r-timeline");
  EXPECT_EQ(chart.seconds, 1);
  EXPECT_THAT(chart.rows, ElementsAre("rank 0", "rank 1", "rank 1 communicates"));
  std::vector<std::string> names;
  for (const SpanChart::Kind& kind : chart.kinds) names.push_back(kind.name);
  EXPECT_THAT(names, ElementsAre("forward", "backward", "bubble", "all_reduce loss"));
  ASSERT_EQ(chart.kinds[0].spans.size(), 2u);
  EXPECT_EQ(chart.kinds[0].spans[1].row, 1);
  EXPECT_EQ(chart.kinds[0].spans[1].label, "forward of micro-batch 1");
  EXPECT_EQ(chart.kinds[3].spans[0].row, 2);
  EXPECT_EQ(chart.kinds[3].spans[0].label, "all_reduce loss, 8 B");
}

TEST(StepChartsTest, BothEndsOfAMessageAreOfOneKind) {
  ComparedRun compared = TracedRun();
  compared.run.step_trace->ranks[0].calls = {{"send activations", 8, 0.4, 0.5}};
  compared.run.step_trace->ranks[1].calls = {{"recv activations", 8, 0.1, 0.5}};
  const auto charts = StepCharts(compared, "r");
  const SpanChart::Kind& messages = BodyOf<SpanChart>(charts, "r-timeline").kinds.back();
  EXPECT_EQ(messages.name, "send, recv activations");
  ASSERT_EQ(messages.spans.size(), 2u);
  EXPECT_EQ(messages.spans[0].label, "send activations, 8 B");
  EXPECT_EQ(messages.spans[1].label, "recv activations, 8 B");
}

TEST(StepChartsTest, ShowsTheFullestRanksMemoryWithItsPeak) {
  const auto charts = StepCharts(TracedRun(), "r");
  ASSERT_EQ(charts.size(), 2u);
  EXPECT_EQ(charts[1].title, "ddp: memory of rank 1 meanwhile");
  const auto& chart = BodyOf<LineChart>(charts, "r-memory-over-time");
  EXPECT_TRUE(chart.stacked);
  ASSERT_EQ(chart.lines.size(), 2u);
  EXPECT_EQ(chart.lines[1].name, "gradients");
  EXPECT_THAT(chart.lines[1].points,
              ElementsAre(Pair(0, 0), Pair(0, 0), Pair(0.5001, 70), Pair(0.5002, 5), Pair(1, 5)));
}

// The last leg goes on to the end, whatever its steps.
TEST(StepChartsTest, NamesTheLegThatHasTheStep) {
  ComparedRun compared = TracedRun();
  compared.run.legs = {Leg::Parse("4: single").value(), Leg::Parse("1: ddp dp=2 tp=2").value(),
                       Leg::Parse("1: tp tp=2").value()};
  const auto title = [&compared](int64_t step) {
    compared.run.step_trace->step = step;
    return StepCharts(compared, "r").at(0).title;
  };
  EXPECT_EQ(title(3), "ddp: step 3 of all ranks, leg 1 of 3, single");
  EXPECT_EQ(title(4), "ddp: step 4 of all ranks, leg 2 of 3, ddp dp=2 tp=2");
  EXPECT_EQ(title(5), "ddp: step 5 of all ranks, leg 3 of 3, tp tp=2");
  EXPECT_EQ(title(9), "ddp: step 9 of all ranks, leg 3 of 3, tp tp=2");
  compared.run.legs.clear();
  EXPECT_EQ(title(9), "ddp: step 9 of all ranks");
}

TEST(StepChartsTest, NoTraceNoCharts) { EXPECT_THAT(StepCharts(ComparedRun(), "r"), IsEmpty()); }

}  // namespace
}  // namespace lockstep
