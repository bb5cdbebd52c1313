#include "tools/plan/held_to.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "foresight/network_time.h"
#include "foresight/recorded_run.h"
#include "models/models.h"
#include "strategies/engine/preset.h"

namespace lockstep {

absl::StatusOr<RecordedRows> RecordRows(std::vector<MeasuredRow> rows, const Dialect& dialect,
                                        const Cluster& cluster) {
  RecordedRows recorded = {.rows = std::move(rows), .steps = {}};
  for (const MeasuredRow& row : recorded.rows) {
    absl::StatusOr<RecordedRun> run =
        RecordRun(RunOf(row, dialect.row_settings()), EnginePreset("plan", {}), MakeModel);
    if (!run.ok()) return Annotate(run.status(), row.name);
    absl::StatusOr<StepTime> step =
        StepTime::Create(std::make_shared<const RecordedRun>(*std::move(run)), dialect, cluster);
    if (!step.ok()) return Annotate(step.status(), row.name);
    recorded.steps.push_back(*std::move(step));
  }
  return recorded;
}

absl::StatusOr<std::vector<double>> Predict(const RecordedRows& recorded, const Dialect& dialect,
                                            const Cluster& cluster) {
  const NetworkTime network(cluster);
  std::vector<double> predicted;
  for (const StepTime& step : recorded.steps) {
    LS_ASSIGN_OR_RETURN(const StepEstimate estimate, step.Estimate(dialect, cluster, network));
    predicted.push_back(estimate.seconds);
  }
  return predicted;
}

std::string Judgement::ToString() const {
  return absl::StrFormat(
      "%d rows: error mean %.2f %%, median %.2f %%, largest %.1f %%; regret of %d groups: mean "
      "%.2f %%, largest %.1f %%",
      rows, 100 * mean, 100 * median, 100 * largest, groups.size(), 100 * regret,
      100 * largest_regret);
}

Judgement Judge(const std::vector<MeasuredRow>& rows, const std::vector<double>& predicted) {
  Judgement judgement = {.rows = rows.size()};
  std::map<std::vector<int64_t>, std::vector<size_t>> groups;
  std::vector<double> errors;
  for (size_t i = 0; i < rows.size(); ++i) {
    errors.push_back(std::abs(predicted[i] / rows[i].seconds - 1));
    groups[rows[i].Group()].push_back(i);
  }
  if (rows.empty()) return judgement;
  std::sort(errors.begin(), errors.end());
  const size_t n = errors.size();
  for (const double error : errors) judgement.mean += error / static_cast<double>(n);
  judgement.median = (errors[(n - 1) / 2] + errors[n / 2]) / 2;
  judgement.largest = errors.back();
  for (const auto& [key, members] : groups) {
    const MeasuredRow& preferred = rows[*std::ranges::min_element(
        members, {}, [&predicted](size_t row) { return predicted[row]; })];
    const MeasuredRow& best = rows[*std::ranges::min_element(
        members, {}, [&rows](size_t row) { return rows[row].seconds; })];
    const double regret = preferred.seconds / best.seconds - 1;
    judgement.groups.push_back({.name = best.GroupName(),
                                .rows = members.size(),
                                .preferred = preferred.MeshName(),
                                .best = best.MeshName(),
                                .regret = regret});
    judgement.regret += regret / static_cast<double>(groups.size());
    judgement.largest_regret = std::max(judgement.largest_regret, regret);
  }
  return judgement;
}

Table RegretByGroup(const Judgement& judgement) {
  Table table = {.columns = {{"group", Table::Align::kLeft},
                             {"rows"},
                             {"preferred mesh", Table::Align::kLeft},
                             {"best mesh", Table::Align::kLeft},
                             {"regret"}}};
  for (const JudgedGroup& group : judgement.groups) {
    if (group.rows == 1) continue;
    table.Add({group.name, absl::StrCat(group.rows), group.preferred, group.best,
               absl::StrFormat("%.2f %%", 100 * group.regret)});
  }
  table.title = absl::StrCat("regret by group; ", judgement.groups.size() - table.rows.size(),
                             " groups of one row are left out");
  return table;
}

}  // namespace lockstep
