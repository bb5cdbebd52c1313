#include "tools/compare/charts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
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

LineChart LossChart(const ComparedWorkload& workload) {
  LineChart chart = {.x = Steps(), .y = {"loss"}};
  for (size_t i = 0; i < workload.runs.size(); ++i) {
    const ComparedRun& compared = workload.runs[i];
    // What lies in the directory of a run that is missing is an earlier one's.
    if (compared.run.state == RunRecord::State::kMissing || compared.run.losses.empty()) continue;
    chart.lines.push_back(
        LineOf(workload, i, LargestDifference(compared) < kVisible, PointsOf(compared.run.losses)));
  }
  return chart;
}

LineChart DifferenceChart(const ComparedWorkload& workload) {
  LineChart chart = {.x = Steps(),
                     .y = {.title = "relative difference", .least_range = kLeastDifference}};
  for (size_t i = 0; i < workload.runs.size(); ++i) {
    const ComparedRun& compared = workload.runs[i];
    if (!compared.curve || compared.is_reference) continue;
    chart.lines.push_back(
        LineOf(workload, i, LargestDifference(compared) == 0, PointsOf(compared.differences)));
  }
  return chart;
}

LineChart LossScaleChart(const ComparedWorkload& workload) {
  LineChart chart = {.x = Steps(), .y = {.title = "loss scale", .logarithmic = true}};
  for (size_t i = 0; i < workload.runs.size(); ++i) {
    Points points;
    for (const double scale : workload.runs[i].run.loss_scales) {
      points.emplace_back(static_cast<double>(points.size()), scale);
    }
    if (!points.empty()) chart.lines.push_back(LineOf(workload, i, true, std::move(points)));
  }
  return chart;
}

// What stands beside a bar, and its values by category.
using Row = std::pair<std::string, std::map<std::string, double>>;

// Categories of which no row has anything are left out.
BarChart BarsOf(Quantity quantity, absl::Span<const Category> categories,
                const std::vector<Row>& rows) {
  BarChart chart = {.quantity = quantity};
  for (const auto& [label, values] : rows) chart.rows.push_back(label);
  for (const Category& category : categories) {
    BarChart::Segment segment = {.name = category.title, .colour = category.colour};
    for (const auto& [label, values] : rows) segment.values.push_back(ValueOf(values, category));
    const bool any = std::ranges::any_of(segment.values, [](double value) { return value != 0; });
    if (any && !category.beside) chart.segments.push_back(std::move(segment));
  }
  return chart;
}

// "ddp, rank 0", or "ddp, ranks 0 to 3" of those that are alike, or "single".
std::string RanksLabel(const ComparedRun& compared, size_t first, size_t end) {
  if (compared.run.per_rank.size() == 1) return compared.label;
  if (end == first + 1) return absl::StrCat(compared.label, ", rank ", first);
  return absl::StrCat(compared.label, ", ranks ", first, end == first + 2 ? " and " : " to ",
                      end - 1);
}

BarChart MemoryChart(const ComparedWorkload& workload) {
  std::vector<Row> rows;
  for (const ComparedRun& compared : workload.runs) {
    if (!compared.run.complete()) continue;
    const std::vector<RunRank>& ranks = compared.run.per_rank;
    for (size_t rank = 0, end; rank < ranks.size(); rank = end) {
      const std::map<std::string, double>& memory = ranks[rank].memory_at_peak;
      for (end = rank + 1; end < ranks.size() && ranks[end].memory_at_peak == memory;) ++end;
      rows.emplace_back(RanksLabel(compared, rank, end), memory);
    }
  }
  return BarsOf(Quantity::kBytes, kMemoryCategories, rows);
}

BarChart TimeChart(const ComparedWorkload& workload) {
  std::vector<Row> rows;
  for (const ComparedRun& compared : workload.runs) {
    if (compared.run.complete()) rows.emplace_back(compared.label, compared.run.time);
  }
  return BarsOf(Quantity::kSeconds, kTimeCategories, rows);
}

// What makes a line over numbers of ranks: a strategy on one kind of mesh.
struct Scaling {
  int colour = 0;                       // of its first run
  std::map<int64_t, double> best = {};  // units a second, by ranks
};

// By strategy and kind of mesh, without runs with legs, which have several. A strategy's runs of
// one rank are where each of its lines begins.
std::map<std::pair<std::string, std::string>, Scaling> Scalings(const ComparedWorkload& workload) {
  std::map<std::pair<std::string, std::string>, Scaling> scalings;
  for (const bool of_one_rank : {false, true}) {
    for (size_t i = 0; i < workload.runs.size(); ++i) {
      const RunRecord& run = workload.runs[i].run;
      if (!run.complete() || !run.legs.empty()) continue;
      if ((run.ranks == 1) != of_one_rank) continue;
      std::vector<Scaling*> lines;
      for (auto& [key, scaling] : scalings) {
        if (of_one_rank && key.first == run.strategy) lines.push_back(&scaling);
      }
      if (lines.empty()) {
        const auto line = scalings.try_emplace({run.strategy, MeshKind(run.mesh)},
                                               Scaling{.colour = static_cast<int>(i)});
        lines.push_back(&line.first->second);
      }
      for (Scaling* line : lines) {
        double& best = line->best[run.ranks];
        best = std::max(best, run.units_per_second);
      }
    }
  }
  return scalings;
}

// No lines where no strategy ran on several numbers of ranks.
LineChart ThroughputChart(const ComparedWorkload& workload) {
  const auto scalings = Scalings(workload);
  const bool several_sizes =
      std::ranges::any_of(scalings, [](const auto& entry) { return entry.second.best.size() > 1; });
  if (!several_sizes) return {};
  std::map<std::string, int> kinds;  // of meshes, by strategy
  for (const auto& entry : scalings) ++kinds[entry.first.first];
  const auto complete =
      std::ranges::find_if(workload.runs, &RunRecord::complete, &ComparedRun::run);
  LineChart chart = {.x = {.title = "ranks", .whole = true},
                     .y = {.title = complete->run.unit + " a second", .from_zero = true}};
  for (const auto& [key, scaling] : scalings) {
    const auto& [strategy, kind] = key;
    chart.lines.push_back(
        {.name = kinds[strategy] > 1 ? absl::StrCat(strategy, " (", kind, ")") : strategy,
         .colour = scaling.colour,
         .points = Points(scaling.best.begin(), scaling.best.end())});
  }
  return chart;
}

// A bar for each router, of the first run that has experts: runs of one workload route alike.
BarChart ExpertLoadChart(const ComparedWorkload& workload) {
  BarChart chart;
  const auto has_experts = [](const ComparedRun& compared) {
    return compared.run.complete() && !compared.run.expert_load.empty();
  };
  const auto found = std::ranges::find_if(workload.runs, has_experts);
  if (found == workload.runs.end()) return chart;
  const std::vector<RunRecord::LayerLoad>& layers = found->run.expert_load;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    chart.rows.push_back(layers[layer].router);
    const std::vector<double>& fractions = layers[layer].fractions;
    for (size_t expert = 0; expert < fractions.size(); ++expert) {
      if (expert == chart.segments.size()) {
        chart.segments.push_back(
            {.name = absl::StrCat("expert ", expert), .colour = static_cast<int>(expert)});
      }
      std::vector<double>& values = chart.segments[expert].values;
      values.resize(layer);
      values.push_back(fractions[expert]);
    }
  }
  for (BarChart::Segment& segment : chart.segments) segment.values.resize(layers.size());
  return chart;
}

bool IsEmpty(const LineChart& chart) { return chart.lines.empty(); }
bool IsEmpty(const BarChart& chart) { return chart.segments.empty(); }

}  // namespace

std::vector<Chart> ComparisonCharts(const ComparedWorkload& workload, const std::string& id) {
  std::vector<Chart> charts;
  const auto add = [&](const char* name, const char* title, auto chart) {
    if (IsEmpty(chart)) return;
    charts.push_back({.id = absl::StrCat(id, "-", name), .title = title, .body = std::move(chart)});
  };
  add("loss", "Loss", LossChart(workload));
  add("difference", "Difference of the loss to the reference's, relative",
      DifferenceChart(workload));
  add("memory", "Memory of a rank by class, when it had most", MemoryChart(workload));
  add("time", "Time of a step, mean over steps and ranks", TimeChart(workload));
  add("throughput", "Throughput of all ranks together, by strategy and kind of mesh",
      ThroughputChart(workload));
  add("scale", "Loss scale", LossScaleChart(workload));
  add("experts", "Fraction of the last step's choices that each expert got",
      ExpertLoadChart(workload));
  return charts;
}

}  // namespace lockstep
