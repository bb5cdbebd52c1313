#include "tools/compare/charts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/compare/costs.h"

namespace lockstep {
namespace {

using Points = std::vector<std::pair<double, double>>;

// The smallest difference that can be seen as one: about that of neighbours among floats.
constexpr double kLeastDifference = 1e-7;

LineChart::Axis Steps() { return {.title = "step", .whole = true}; }

// Curves that differ by less, relatively, cannot be told apart where they lie on each other.
constexpr double kVisible = 1e-3;

// How far a run's curve is from its reference's, relatively; 0 where nobody knows, since curves of
// one workload mostly agree.
double LargestDifference(const ComparedRun& compared) {
  return compared.curve && compared.curve->largest ? compared.curve->largest->relative : 0;
}

// A run's line, in the run's colour. Where it `covers` the line of another, they show in turns.
LineChart::Line LineOf(const ComparedWorkload& workload, size_t i, bool covers, Points points) {
  const ComparedRun& compared = workload.runs[i];
  LineChart::Line line = {
      .name = compared.label, .colour = static_cast<int>(i), .points = std::move(points)};
  if (!compared.run.complete()) line.name += " (failed)";
  if (compared.is_reference) {
    line.style = LineChart::Style::kWide;
  } else if (covers) {
    line.style = LineChart::Style::kInTurns;
  }
  return line;
}

void AddLossCharts(const ComparedWorkload& workload, const std::string& id,
                   std::vector<Chart>& charts) {
  LineChart losses = {.x = Steps(), .y = {"loss"}};
  LineChart differences = {.x = Steps(),
                           .y = {.title = "relative difference", .least_range = kLeastDifference}};
  for (size_t i = 0; i < workload.runs.size(); ++i) {
    const ComparedRun& compared = workload.runs[i];
    // What lies in the directory of a run that is missing is an earlier one's.
    if (compared.run.state != RunRecord::State::kMissing && !compared.run.losses.empty()) {
      losses.lines.push_back(LineOf(workload, i, LargestDifference(compared) < kVisible,
                                    PointsOf(compared.run.losses)));
    }
    if (compared.curve && !compared.is_reference) {
      differences.lines.push_back(
          LineOf(workload, i, LargestDifference(compared) == 0, PointsOf(compared.differences)));
    }
  }
  if (!losses.lines.empty()) {
    charts.push_back({.id = id + "-loss", .title = "Loss", .body = std::move(losses)});
  }
  if (!differences.lines.empty()) {
    charts.push_back({.id = id + "-difference",
                      .title = "Difference of the loss to the reference's, relative",
                      .body = std::move(differences)});
  }
}

void DropEmptySegments(BarChart& chart) {
  std::erase_if(chart.segments, [](const BarChart::Segment& segment) {
    return std::ranges::all_of(segment.values, [](double value) { return value == 0; });
  });
}

// "ddp, rank 0", or "ddp, ranks 0 to 3" of those that are alike, or "single".
std::string RanksLabel(const ComparedRun& compared, size_t first, size_t end) {
  if (compared.run.per_rank.size() == 1) return compared.label;
  if (end == first + 1) return absl::StrCat(compared.label, ", rank ", first);
  return absl::StrCat(compared.label, ", ranks ", first, end == first + 2 ? " and " : " to ",
                      end - 1);
}

void AddMemoryChart(const ComparedWorkload& workload, const std::string& id,
                    std::vector<Chart>& charts) {
  BarChart chart = {.quantity = Quantity::kBytes};
  for (const MemoryCategory& category : kMemoryCategories) {
    chart.segments.push_back({.name = category.title, .colour = category.colour, .values = {}});
  }
  for (const ComparedRun& compared : workload.runs) {
    if (!compared.run.complete()) continue;
    const std::vector<RunRank>& ranks = compared.run.per_rank;
    for (size_t rank = 0, end; rank < ranks.size(); rank = end) {
      const std::map<std::string, double>& memory = ranks[rank].memory_at_peak;
      for (end = rank + 1; end < ranks.size() && ranks[end].memory_at_peak == memory;) ++end;
      chart.rows.push_back(RanksLabel(compared, rank, end));
      for (size_t i = 0; i < std::size(kMemoryCategories); ++i) {
        const auto bytes = memory.find(kMemoryCategories[i].name);
        chart.segments[i].values.push_back(bytes == memory.end() ? 0 : bytes->second);
      }
    }
  }
  DropEmptySegments(chart);
  if (chart.segments.empty()) return;
  charts.push_back({.id = id + "-memory",
                    .title = "Memory of a rank by class, when it had most",
                    .body = std::move(chart)});
}

void AddTimeChart(const ComparedWorkload& workload, const std::string& id,
                  std::vector<Chart>& charts) {
  BarChart chart = {.quantity = Quantity::kSeconds};
  for (const TimeCategory& category : kTimeCategories) {
    if (category.beside) continue;
    BarChart::Segment& bars = chart.segments.emplace_back();
    bars.name = category.title;
    bars.colour = category.colour;
    for (const ComparedRun& compared : workload.runs) {
      if (compared.run.complete()) bars.values.push_back(Spent(compared.run, category));
    }
  }
  for (const ComparedRun& compared : workload.runs) {
    if (compared.run.complete()) chart.rows.push_back(compared.label);
  }
  DropEmptySegments(chart);
  if (chart.segments.empty()) return;
  charts.push_back({.id = id + "-time",
                    .title = "Time of a step, mean over steps and ranks",
                    .body = std::move(chart)});
}

// What makes a line over numbers of ranks: a strategy on one kind of mesh.
struct Scaling {
  int colour = 0;                       // of its first run
  std::map<int64_t, double> best = {};  // units a second, by ranks

  void Add(const RunRecord& run) {
    double& throughput = best[run.ranks];
    throughput = std::max(throughput, run.units_per_second);
  }
};

// By strategy and kind of mesh. A strategy's runs of one rank are where each of its lines begins.
std::map<std::pair<std::string, std::string>, Scaling> Scalings(const ComparedWorkload& workload) {
  std::map<std::pair<std::string, std::string>, Scaling> scalings;
  const auto runs_of = [&workload](bool of_one_rank) {
    std::vector<size_t> runs;
    for (size_t i = 0; i < workload.runs.size(); ++i) {
      const RunRecord& run = workload.runs[i].run;
      if (run.complete() && (run.ranks == 1) == of_one_rank) runs.push_back(i);
    }
    return runs;
  };
  for (const size_t i : runs_of(false)) {
    const RunRecord& run = workload.runs[i].run;
    const auto line = scalings.try_emplace({run.strategy, MeshKind(run.mesh)},
                                           Scaling{.colour = static_cast<int>(i)});
    line.first->second.Add(run);
  }
  for (const size_t i : runs_of(true)) {
    const RunRecord& run = workload.runs[i].run;
    bool has_line = false;
    for (auto& [key, scaling] : scalings) {
      if (key.first != run.strategy) continue;
      scaling.Add(run);
      has_line = true;
    }
    if (!has_line) {
      Scaling& alone = scalings[{run.strategy, ""}];
      alone.colour = static_cast<int>(i);
      alone.Add(run);
    }
  }
  return scalings;
}

void AddThroughputChart(const ComparedWorkload& workload, const std::string& id,
                        std::vector<Chart>& charts) {
  const auto scalings = Scalings(workload);
  const bool several_sizes =
      std::ranges::any_of(scalings, [](const auto& entry) { return entry.second.best.size() > 1; });
  if (!several_sizes) return;
  std::map<std::string, int> kinds;  // of meshes, by strategy
  for (const auto& entry : scalings) ++kinds[entry.first.first];
  const auto complete =
      std::ranges::find_if(workload.runs, &RunRecord::complete, &ComparedRun::run);
  LineChart chart = {.x = {.title = "ranks", .whole = true},
                     .y = {.title = complete->run.unit + " a second", .from_zero = true}};
  for (const auto& [key, scaling] : scalings) {
    const auto& [strategy, kind] = key;
    Points points;
    for (const auto& [ranks, throughput] : scaling.best) {
      points.emplace_back(static_cast<double>(ranks), throughput);
    }
    chart.lines.push_back(
        {.name = kinds[strategy] > 1 ? absl::StrCat(strategy, " (", kind, ")") : strategy,
         .colour = scaling.colour,
         .points = std::move(points)});
  }
  charts.push_back({.id = id + "-throughput",
                    .title = "Throughput of all ranks together, by strategy and kind of mesh",
                    .body = std::move(chart)});
}

void AddLossScaleChart(const ComparedWorkload& workload, const std::string& id,
                       std::vector<Chart>& charts) {
  LineChart chart = {.x = Steps(), .y = {.title = "loss scale", .logarithmic = true}};
  for (size_t i = 0; i < workload.runs.size(); ++i) {
    const RunRecord& run = workload.runs[i].run;
    Points points;
    for (size_t step = 0; step < run.loss_scales.size(); ++step) {
      points.emplace_back(static_cast<double>(step), run.loss_scales[step]);
    }
    if (!points.empty()) chart.lines.push_back(LineOf(workload, i, true, std::move(points)));
  }
  if (chart.lines.empty()) return;
  charts.push_back({.id = id + "-scale", .title = "Loss scale", .body = std::move(chart)});
}

}  // namespace

std::vector<Chart> ComparisonCharts(const ComparedWorkload& workload, const std::string& id) {
  std::vector<Chart> charts;
  AddLossCharts(workload, id, charts);
  AddMemoryChart(workload, id, charts);
  AddTimeChart(workload, id, charts);
  AddThroughputChart(workload, id, charts);
  AddLossScaleChart(workload, id, charts);
  return charts;
}

}  // namespace lockstep
