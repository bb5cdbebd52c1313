#include "tools/compare/charts.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/compare/costs.h"

namespace lockstep {
namespace {

using Points = std::vector<std::pair<double, double>>;

// The smallest difference that can be seen as one: about that of neighbours among floats.
constexpr double kLeastDifference = 1e-7;

// Curves that differ by less, relatively, cannot be told apart where they lie on each other.
constexpr double kVisible = 1e-3;

Points PointsOf(const std::vector<LossPoint>& curve) {
  Points points;
  for (const LossPoint& point : curve) {
    points.emplace_back(static_cast<double>(point.step), point.loss);
  }
  return points;
}

// How far a run's curve is from its reference's, relatively; infinite where nobody knows.
double LargestDifference(const ComparedRun& compared) {
  if (!compared.curve) return std::numeric_limits<double>::infinity();
  return compared.curve->largest ? compared.curve->largest->relative : 0;
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
  LineChart losses = {.x = {"step"}, .y = {"loss"}};
  LineChart differences = {.x = {"step"},
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

void DropEmptyParts(BarChart& chart) {
  std::erase_if(chart.parts, [](const BarChart::Part& part) {
    return std::all_of(part.values.begin(), part.values.end(),
                       [](double value) { return value == 0; });
  });
}

void AddMemoryChart(const ComparedWorkload& workload, const std::string& id,
                    std::vector<Chart>& charts) {
  BarChart chart = {.quantity = Quantity::kBytes};
  for (const MemoryPart& part : kMemoryParts) {
    chart.parts.push_back({.name = part.title, .colour = part.colour, .values = {}});
  }
  for (const ComparedRun& compared : workload.runs) {
    if (!compared.run.complete()) continue;
    const std::vector<RunRank>& ranks = compared.run.per_rank;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      chart.rows.push_back(ranks.size() == 1 ? compared.label
                                             : absl::StrCat(compared.label, ", rank ", rank));
      for (size_t i = 0; i < std::size(kMemoryParts); ++i) {
        const auto bytes = ranks[rank].memory_at_peak.find(kMemoryParts[i].name);
        chart.parts[i].values.push_back(bytes == ranks[rank].memory_at_peak.end() ? 0
                                                                                  : bytes->second);
      }
    }
  }
  DropEmptyParts(chart);
  if (chart.parts.empty()) return;
  charts.push_back({.id = id + "-memory",
                    .title = "Memory of each rank by class, when it had most",
                    .body = std::move(chart)});
}

void AddTimeChart(const ComparedWorkload& workload, const std::string& id,
                  std::vector<Chart>& charts) {
  BarChart chart = {.quantity = Quantity::kSeconds};
  // The last one happened beside the others.
  for (size_t i = 0; i + 1 < std::size(kTimeParts); ++i) {
    chart.parts.push_back(
        {.name = kTimeParts[i].title, .colour = kTimeParts[i].colour, .values = {}});
  }
  for (const ComparedRun& compared : workload.runs) {
    if (!compared.run.complete()) continue;
    chart.rows.push_back(compared.label);
    for (size_t i = 0; i < chart.parts.size(); ++i) {
      chart.parts[i].values.push_back(Spent(compared.run, kTimeParts[i]));
    }
  }
  DropEmptyParts(chart);
  if (chart.parts.empty()) return;
  charts.push_back({.id = id + "-time",
                    .title = "Time of a step, mean over steps and ranks",
                    .body = std::move(chart)});
}

void AddThroughputChart(const ComparedWorkload& workload, const std::string& id,
                        std::vector<Chart>& charts) {
  std::map<std::string, std::map<int64_t, double>> best;  // by strategy and ranks
  std::string unit;
  for (const ComparedRun& compared : workload.runs) {
    const RunRecord& run = compared.run;
    if (!run.complete()) continue;
    unit = run.unit;
    double& throughput = best[run.strategy][run.ranks];
    throughput = std::max(throughput, run.units_per_second);
  }
  const bool several = std::any_of(best.begin(), best.end(),
                                   [](const auto& entry) { return entry.second.size() > 1; });
  if (!several) return;
  LineChart chart = {.x = {"ranks"}, .y = {unit + " a second"}};
  for (const auto& [strategy, by_ranks] : best) {
    Points points;
    for (const auto& [ranks, throughput] : by_ranks) {
      points.emplace_back(static_cast<double>(ranks), throughput);
    }
    chart.lines.push_back({.name = strategy,
                           .colour = static_cast<int>(chart.lines.size()),
                           .points = std::move(points)});
  }
  charts.push_back({.id = id + "-throughput",
                    .title = "Throughput of all ranks together",
                    .body = std::move(chart)});
}

void AddLossScaleChart(const ComparedWorkload& workload, const std::string& id,
                       std::vector<Chart>& charts) {
  LineChart chart = {.x = {"step"}, .y = {.title = "loss scale", .logarithmic = true}};
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
