#include "tools/bench/foresight/published_steps.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "foresight/cluster.h"
#include "foresight/dialect.h"
#include "foresight/llm_training_puzzles.h"
#include "foresight/network_time.h"
#include "foresight/shipped.h"
#include "foresight/step_time.h"
#include "tools/plan/fit.h"
#include "tools/plan/published.h"
#include "tools/plan/vtrain.h"

namespace lockstep {
namespace {

std::string Percent(double fraction) { return absl::StrFormat("%.2f %%", 100 * fraction); }

// Goals: 0 where there is none.
struct Goals {
  double mean = 0, median = 0, largest = 0, regret = 0;
};

void Add(const std::string& name, const Judgement& judgement, const Goals& goals, Table& table) {
  std::vector<std::string> cells = {name, absl::StrCat(judgement.rows)};
  const auto add = [&](double value, double goal) {
    cells.push_back(Percent(value));
    cells.push_back(goal == 0 ? "" : Percent(goal));
  };
  add(judgement.mean, goals.mean);
  add(judgement.median, goals.median);
  add(judgement.largest, goals.largest);
  add(judgement.regret, goals.regret);
  table.Add(std::move(cells));
}

// The largest distance between a fitted number and its value in halves.toml, as a fraction of the
// parameter's range.
absl::StatusOr<double> DistanceFromTested(const Fit& fit, size_t half) {
  LS_ASSIGN_OR_RETURN(const auto halves, VtrainHalves());
  double largest = 0;
  for (const FitParameter& parameter : VtrainParameters()) {
    const double tested = halves[half].at(parameter.name);
    const double range = parameter.high - parameter.low;
    const auto compare = [&](const std::map<std::string, double>& fitted) {
      const auto found = fitted.find(parameter.name);
      if (found == fitted.end()) return;
      largest = std::max(largest, std::abs(found->second - tested) / range);
    };
    compare(fit.cluster.fitted);
    for (const Dialect& dialect : fit.dialects) compare(dialect.fitted());
  }
  return largest;
}

absl::Status AddVtrain(Table& table, std::vector<Table>& details) {
  LS_ASSIGN_OR_RETURN(const Cluster cluster,
                      ReadCluster(ShippedPath("foresight/clusters", "a100_80g")));
  LS_ASSIGN_OR_RETURN(const VtrainRows rows, ReadVtrainRows(cluster));
  std::vector<FitRows> files = rows.ToFit();
  const Goals goals[] = {{.mean = 0.04, .median = 0.015, .regret = 0.01},
                         {.mean = 0.06, .median = 0.02}};
  const char* const names[] = {"vTrain, one node", "vTrain, many nodes"};
  Table tested = {.title = "the fits beside those that tests judge by, measured/halves.toml",
                  .columns = {{"fitted to", Table::Align::kLeft},
                              {"rounds"},
                              {"cost"},
                              {"largest distance of a number, of its range"}}};
  for (const size_t first : {0, 1}) {
    ChooseRows(first, 2, files);
    LS_ASSIGN_OR_RETURN(const Fit fit, FitTo(files, cluster, VtrainParameters()));
    LS_ASSIGN_OR_RETURN(const double distance, DistanceFromTested(fit, first));
    tested.Add({first == 0 ? "odd rows" : "even rows", absl::StrCat(fit.rounds),
                absl::StrFormat("%.6g", fit.cost), Percent(distance)});
    LS_ASSIGN_OR_RETURN(const std::vector<Judgement> judgements, JudgeFit(fit, files));
    for (size_t i = 0; i < files.size(); ++i) {
      const std::string name = absl::StrCat(
          names[i], first == 0 ? ", even rows by odd ones" : ", odd rows by even ones");
      Add(name, judgements[i], goals[i], table);
      Table& groups = details.emplace_back(RegretByGroup(judgements[i]));
      groups.title = absl::StrCat(name, ": ", groups.title);
    }
  }
  details.push_back(std::move(tested));
  return absl::OkStatus();
}

absl::Status AddPapers(Table& table) {
  constexpr Goals kGoals = {.mean = 0.05, .largest = 0.12};
  LS_ASSIGN_OR_RETURN(const Cluster cluster, Selene());
  LS_ASSIGN_OR_RETURN(const PublishedSteps recomputation, ActivationRecomputation(cluster));
  Add("Korthikanti et al. 2022", recomputation.Judged(), kGoals, table);
  LS_ASSIGN_OR_RETURN(const PublishedSteps others, RefittedToTwo(recomputation, cluster));
  Add("the same, products fitted to two", others.Judged(), {.mean = 0.03}, table);
  LS_ASSIGN_OR_RETURN(const PublishedSteps large, EfficientLargeScaleTraining(cluster));
  Add("Narayanan et al. 2021", large.Judged(), kGoals, table);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Table>> PublishedErrors() {
  Table table = {.title = "errors on steps that others have measured",
                 .columns = {{"rows", Table::Align::kLeft},
                             {"number"},
                             {"mean"},
                             {"goal"},
                             {"median"},
                             {"goal"},
                             {"largest"},
                             {"goal"},
                             {"regret"},
                             {"goal"}}};
  std::vector<Table> details;
  LS_RETURN_IF_ERROR(AddVtrain(table, details));
  LS_RETURN_IF_ERROR(AddPapers(table));
  std::vector<Table> tables = {std::move(table)};
  tables.insert(tables.end(), details.begin(), details.end());
  return tables;
}

absl::StatusOr<Table> PublishedMemoryErrors() {
  LS_ASSIGN_OR_RETURN(const Cluster cluster, Selene());
  LS_ASSIGN_OR_RETURN(const std::vector<PublishedMemory> rows,
                      ActivationMemory(cluster, ReportedMemory::kAll));
  Table table = {
      .title = "memory of layers on a device, Korthikanti et al. 2022",
      .columns = {
          {"memory", Table::Align::kLeft}, {"predicted"}, {"published"}, {"error"}, {"goal"}}};
  for (const PublishedMemory& row : rows) {
    table.Add({row.name, FormatBytes(static_cast<int64_t>(row.predicted)),
               FormatBytes(static_cast<int64_t>(row.published)),
               absl::StrFormat("%+.2f %%", 100 * row.error()), Percent(0.01)});
  }
  return table;
}

absl::StatusOr<Table> Puzzles() {
  constexpr char kName[] = "llm_training_puzzles";
  LS_ASSIGN_OR_RETURN(const Cluster cluster, ReadCluster(ShippedPath("foresight/clusters", kName)));
  LS_ASSIGN_OR_RETURN(const Dialect dialect,
                      Dialect::Read(ShippedPath("foresight/dialects", kName)));
  const NetworkTime network(cluster);
  Table table = {
      .title = "LLM-Training-Puzzles' reference solutions",
      .columns = {
          {"solution", Table::Align::kLeft}, {"time"}, {"counted"}, {"memory"}, {"counted"}}};
  for (const PuzzleSolution& solution : PuzzleSolutions()) {
    LS_ASSIGN_OR_RETURN(const StepTime step, StepTime::Create(solution.run, dialect, cluster));
    LS_ASSIGN_OR_RETURN(const StepEstimate estimate, step.Estimate(dialect, cluster, network));
    table.Add({solution.name, absl::StrFormat("%.1f", estimate.seconds),
               absl::StrFormat("%.1f", solution.seconds), absl::StrCat(MostNumbers(*solution.run)),
               absl::StrCat(solution.numbers)});
  }
  return table;
}

}  // namespace lockstep
