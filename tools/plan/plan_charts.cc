#include "tools/plan/plan_charts.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "tools/draw/palette.h"
#include "tools/draw/svg.h"

namespace lockstep {
namespace {

// More samples than a chart has pixels would only make the page heavy.
constexpr size_t kMemorySamples = 500;

SpanChart TimelineChart(const StepEstimate& estimate) {
  SpanChart chart = {.seconds = estimate.seconds};
  constexpr size_t kCompute = 0, kOptimizer = 1, kBubble = 2, kFirstLabel = 3;
  chart.kinds = {
      {.name = "compute", .colour = kForwardWork.colour},
      {.name = kOptimizerWork.name, .colour = kOptimizerWork.colour},
      {.name = kBubbleWork.name, .colour = kBubbleWork.colour, .pale = true},
  };
  int colour = kBubbleWork.colour;
  for (const std::string& label : estimate.labels) {
    do colour = (colour + 1) % kColours;
    while (colour == kForwardWork.colour || colour == kOptimizerWork.colour ||
           colour == kBubbleWork.colour);
    chart.kinds.push_back({.name = absl::StrCat("waits for ", label), .colour = colour});
  }
  for (size_t pp = 0; pp < estimate.ranks.size(); ++pp) {
    const int row = static_cast<int>(pp);
    chart.rows.push_back(absl::StrCat("rank ", pp, " along pp"));
    for (const Interval& interval : estimate.ranks[pp].timeline) {
      size_t kind = kCompute;
      switch (interval.kind) {
        case Interval::Kind::kCompute:
          break;
        case Interval::Kind::kOptimizer:
          kind = kOptimizer;
          break;
        case Interval::Kind::kBubble:
          kind = kBubble;
          break;
        case Interval::Kind::kCommunication:
          kind = kFirstLabel + static_cast<size_t>(interval.label);
          break;
      }
      chart.kinds[kind].spans.push_back({.row = row, .begin = interval.begin, .end = interval.end});
    }
  }
  std::erase_if(chart.kinds, [](const SpanChart::Kind& kind) { return kind.spans.empty(); });
  return chart;
}

double Total(const MemoryOverTime::Sample& sample) {
  double total = 0;
  for (const double bytes : sample.bytes) total += bytes;
  return total;
}

// The largest sample of each of many equal stretches of time, so that no peak is lost.
LineChart MemoryChart(const MemoryOverTime& memory, double seconds) {
  LineChart chart = {.x = {.title = "time", .quantity = Quantity::kSeconds},
                     .y = {.title = "memory", .quantity = Quantity::kBytes, .from_zero = true},
                     .stacked = true};
  std::map<size_t, const MemoryOverTime::Sample*> largest;
  for (const MemoryOverTime::Sample& sample : memory.samples) {
    const auto stretch = static_cast<size_t>(sample.begin / seconds * kMemorySamples);
    const MemoryOverTime::Sample*& kept = largest[stretch];
    if (kept == nullptr || Total(sample) > Total(*kept)) kept = &sample;
  }
  for (size_t c = 0; c < memory.classes.size(); ++c) {
    LineChart::Line line = {.name = memory.classes[c], .colour = static_cast<int>(c)};
    double most = 0;
    for (const auto& [stretch, sample] : largest) {
      line.points.emplace_back(static_cast<double>(stretch) / kMemorySamples * seconds,
                               sample->bytes[c]);
      most = std::max(most, sample->bytes[c]);
    }
    line.points.emplace_back(seconds, line.points.back().second);
    if (most > 0) chart.lines.push_back(std::move(line));
  }
  return chart;
}

}  // namespace

std::vector<Chart> StepCharts(const Explanation& explanation, const std::string& id) {
  const Forecast& run = explanation.forecast;
  std::vector<Chart> charts = {{.id = absl::StrCat(id, "-timeline"),
                                .title = "What the ranks along pp do in a step",
                                .body = TimelineChart(run.estimate)}};
  if (!explanation.memory.samples.empty()) {
    charts.push_back({.id = absl::StrCat(id, "-memory-over-time"),
                      .title = absl::StrCat("Memory of rank ", run.fullest, " along pp"),
                      .body = MemoryChart(explanation.memory, run.seconds)});
  }
  return charts;
}

Drawing MeshMap(const std::vector<Forecast>& runs) {
  constexpr double kCellWidth = 92, kCellHeight = 44, kLabel = 64;
  std::map<std::pair<int, int>, const Forecast*> best;  // by pp and tp
  std::set<int> tps, pps;
  double least = 0;
  for (const Forecast& run : runs) {
    if (!run.refused.ok()) continue;
    const MeshShape& mesh = run.candidate.mesh;
    pps.insert(mesh.pp);
    tps.insert(mesh.tp);
    const Forecast*& kept = best[{mesh.pp, mesh.tp}];
    const auto rank = [](const Forecast& f) { return std::pair(!f.fits, f.seconds); };
    if (kept == nullptr || rank(run) < rank(*kept)) kept = &run;
    if (run.fits && (least == 0 || run.seconds < least)) least = run.seconds;
  }
  const double width = 2 * kMargin + kLabel + kCellWidth * static_cast<double>(tps.size());
  const double height = kHeaderHeight + kCellHeight * static_cast<double>(pps.size() + 1) + kMargin;
  std::string svg = OpenPicture(std::max(width, 420.0), height, "Time of a step over tp and pp",
                                "The best run of each pair; pale: slower; grey: none fits");
  double y = kHeaderHeight;
  double x = kMargin + kLabel;
  for (const int tp : tps) {
    svg += SvgText(x + kCellWidth / 2, y + kCellHeight / 2 + 4, absl::StrCat("tp ", tp),
                   {.anchor = "middle", .weight = "bold"});
    x += kCellWidth;
  }
  for (const int pp : pps) {
    y += kCellHeight;
    svg += SvgText(kMargin, y + kCellHeight / 2 + 4, absl::StrCat("pp ", pp), {.weight = "bold"});
    x = kMargin + kLabel - kCellWidth;
    for (const int tp : tps) {
      x += kCellWidth;
      const auto found = best.find({pp, tp});
      if (found == best.end()) continue;
      const Forecast& run = *found->second;
      // The best is a fifth white, twice its time nearly all white.
      const double white = std::min(0.95, 0.2 + 0.75 * (run.seconds / least - 1));
      const std::string fill = run.fits ? Tint(kForwardWork.colour, white) : "#e4e7ec";
      svg += SvgRectangle({x + 1, y + 1, kCellWidth - 2, kCellHeight - 2}, 3,
                          absl::StrCat("fill=\"", fill, "\""), run.candidate.ToString());
      const char* const ink = run.fits && white < 0.5 ? "#ffffff" : run.fits ? kInk : kSoftInk;
      svg += SvgText(x + kCellWidth / 2, y + kCellHeight / 2 - 2, FormatDuration(run.seconds),
                     {.colour = ink, .anchor = "middle"});
      svg += SvgText(x + kCellWidth / 2, y + kCellHeight / 2 + 14,
                     run.fits ? absl::StrCat("dp ", run.candidate.mesh.data_ranks(), ", b ",
                                             run.candidate.micro_batch)
                              : FormatBytes(static_cast<int64_t>(run.memory.total)),
                     {.size = 11, .colour = ink, .anchor = "middle"});
    }
  }
  svg += "</svg>\n";
  return {.svg = std::move(svg)};
}

std::vector<Chart> ScalingCharts(const std::vector<PlannedScenario>& scenarios,
                                 const std::string& mesh) {
  const std::string unit = UnitOf(scenarios);
  LineChart speed = {.x = {.title = "devices", .logarithmic = true, .whole = true},
                     .y = {.title = unit + "/s", .logarithmic = true}};
  LineChart cost = {.x = {.title = "devices", .logarithmic = true, .whole = true},
                    .y = {.title = "device-hours for 1e9 " + unit, .from_zero = true}};
  const auto line_of = [](LineChart& chart, const std::string& name) -> LineChart::Line& {
    const auto found = std::ranges::find(chart.lines, name, &LineChart::Line::name);
    if (found != chart.lines.end()) return *found;
    chart.lines.push_back({.name = name, .colour = static_cast<int>(chart.lines.size())});
    return chart.lines.back();
  };
  // A cluster's first number of ranks begins both of its lines.
  std::map<std::string, int64_t> first;
  const bool has_weak = std::ranges::any_of(
      scenarios, [](const PlannedScenario& planned) { return planned.scenario.batch_factor > 1; });
  for (const PlannedScenario& planned : scenarios) {
    const Forecast* best = planned.best();
    if (best == nullptr || !best->fits) continue;
    const Scenario& scenario = planned.scenario;
    const bool is_first = first.try_emplace(scenario.cluster, scenario.ranks).second ||
                          first.at(scenario.cluster) == scenario.ranks;
    const auto ranks = static_cast<double>(scenario.ranks);
    for (const bool weak : {false, true}) {
      if (weak ? !has_weak || (scenario.batch_factor == 1 && !is_first)
               : scenario.batch_factor > 1) {
        continue;
      }
      const std::string name =
          absl::StrCat(scenario.cluster, weak ? ", batch grows with the devices" : "");
      line_of(speed, name).points.emplace_back(ranks, best->units_per_second);
      line_of(cost, name).points.emplace_back(ranks, 1e9 / best->units_per_second * ranks / 3600);
    }
  }
  const auto is_short = [](const LineChart::Line& line) { return line.points.size() < 2; };
  if (!std::ranges::all_of(speed.lines, is_short)) {
    std::erase_if(speed.lines, is_short);
    std::erase_if(cost.lines, is_short);
  } else if (speed.lines.size() < 2) {
    return {};
  }
  return {{.id = "speed", .title = "Speed of " + mesh, .body = std::move(speed)},
          {.id = "cost", .title = "Cost of " + mesh, .body = std::move(cost)}};
}

}  // namespace lockstep
