#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "core/base/clock.h"
#include "tools/compare/charts.h"
#include "tools/compare/costs.h"
#include "tools/draw/palette.h"

namespace lockstep {
namespace {

// More samples than a chart has pixels would only make the page heavy.
constexpr int kMemorySamples = 500;

// The next colour behind `colour` that no phase has: for calls.
int NextFreeColour(int colour) {
  do ++colour;
  while (std::ranges::count(StepTrace::kWork, colour % kColours, &WorkKind::colour) > 0);
  return colour;
}

// What a call is drawn as. Both ends of a message have one colour: there are more names than these.
std::string KindOf(const StepTrace::Call& call) {
  for (const char* end : {"send ", "recv "}) {
    absl::string_view label = call.name;
    if (absl::ConsumePrefix(&label, end)) return absl::StrCat("send, recv ", label);
  }
  return call.name;
}

double Total(const StepTrace::Memory& sample) {
  double total = 0;
  for (const auto& [name, bytes] : sample.bytes) total += bytes;
  return total;
}

double Peak(const StepTrace::Rank& rank) {
  double peak = 0;
  for (const StepTrace::Memory& sample : rank.memory) peak = std::max(peak, Total(sample));
  return peak;
}

// The sample with most in each of many equal stretches of time, so that no peak is lost; and the
// first and last of all.
std::vector<StepTrace::Memory> Thinned(const std::vector<StepTrace::Memory>& samples,
                                       double seconds) {
  std::vector<StepTrace::Memory> thinned = {samples.front()};
  int last_stretch = -1;
  for (const StepTrace::Memory& sample : samples) {
    const int stretch = static_cast<int>(sample.seconds / seconds * kMemorySamples);
    if (stretch != last_stretch) {
      thinned.push_back(sample);
      last_stretch = stretch;
    } else if (Total(sample) > Total(thinned.back())) {
      thinned.back() = sample;
    }
  }
  thinned.push_back(samples.back());
  return thinned;
}

// "leg 1 of 3, ddp dp=4": the leg that has a step. Empty where a run has no legs.
std::string LegOf(const RunRecord& run, int64_t step) {
  if (run.legs.empty()) return "";
  size_t leg = 0;  // the last one goes on to the end of the run
  for (int64_t end = run.legs[0].steps; end <= step && leg + 1 < run.legs.size();) {
    end += run.legs[++leg].steps;
  }
  return absl::StrCat("leg ", leg + 1, " of ", run.legs.size(), ", ",
                      absl::StrReplaceAll(run.legs[leg].formation.ToString(), {{" mesh.", " "}}));
}

SpanChart Timeline(const StepTrace& trace) {
  SpanChart chart = {.seconds = trace.seconds};
  for (const WorkKind* work : StepTrace::kWork) {
    chart.kinds.push_back(
        {.name = work->name, .colour = work->colour, .pale = work == &kBubbleWork});
  }
  std::map<std::string, SpanChart::Kind> calls;
  for (size_t rank = 0; rank < trace.ranks.size(); ++rank) {
    const StepTrace::Rank& traced = trace.ranks[rank];
    const int row = static_cast<int>(chart.rows.size());
    chart.rows.push_back(absl::StrCat("rank ", rank));
    for (const StepTrace::Phase& phase : traced.phases) {
      const auto kind =
          std::ranges::find(StepTrace::kWork, phase.work) - std::begin(StepTrace::kWork);
      chart.kinds[kind].spans.push_back(
          {.row = row, .begin = phase.begin, .end = phase.end, .label = LabelOf(phase)});
    }
    if (traced.calls.empty()) continue;
    chart.rows.push_back(absl::StrCat("rank ", rank, " communicates"));
    for (const StepTrace::Call& call : traced.calls) {
      calls[KindOf(call)].spans.push_back(
          {.row = row + 1,
           .begin = call.begin,
           .end = call.end,
           .label = absl::StrCat(call.name, ", ", FormatBytes(call.bytes))});
    }
  }
  int colour = 0;
  for (auto& [name, kind] : calls) {
    kind.name = name;
    kind.colour = colour = NextFreeColour(colour);
    chart.kinds.push_back(std::move(kind));
  }
  std::erase_if(chart.kinds, [](const SpanChart::Kind& kind) { return kind.spans.empty(); });
  return chart;
}

LineChart MemoryOverTime(const StepTrace::Rank& rank, double seconds) {
  LineChart chart = {.x = {.title = "time", .quantity = Quantity::kSeconds},
                     .y = {.title = "memory", .quantity = Quantity::kBytes, .from_zero = true},
                     .stacked = true};
  const std::vector<StepTrace::Memory> samples = Thinned(rank.memory, seconds);
  for (const Category& category : kMemoryCategories) {
    LineChart::Line line = {.name = category.title, .colour = category.colour};
    double most = 0;
    for (const StepTrace::Memory& sample : samples) {
      line.points.emplace_back(sample.seconds, ValueOf(sample.bytes, category));
      most = std::max(most, line.points.back().second);
    }
    line.points.emplace_back(seconds, line.points.back().second);
    if (most > 0) chart.lines.push_back(std::move(line));
  }
  return chart;
}

}  // namespace

std::vector<Chart> StepCharts(const ComparedRun& compared, const std::string& id) {
  std::vector<Chart> charts;
  if (!compared.run.step_trace) return charts;
  const StepTrace& trace = *compared.run.step_trace;
  SpanChart timeline = Timeline(trace);
  if (timeline.kinds.empty()) return charts;
  const std::string leg = LegOf(compared.run, trace.step);
  charts.push_back({.id = id + "-timeline",
                    .title = absl::StrCat(compared.label, ": step ", trace.step, " of all ranks",
                                          leg.empty() ? "" : ", ", leg),
                    .body = std::move(timeline)});
  const auto most = std::ranges::max_element(trace.ranks, {}, Peak);
  if (most->memory.empty()) return charts;
  charts.push_back({.id = id + "-memory-over-time",
                    .title = absl::StrCat(compared.label, ": memory of rank ",
                                          most - trace.ranks.begin(), " meanwhile"),
                    .body = MemoryOverTime(*most, trace.seconds)});
  return charts;
}

}  // namespace lockstep
