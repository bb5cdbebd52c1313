// Fits the numbers of clusters and dialects to measured steps, and judges them.
//
//   ./bazelw run //tools/plan:fit_rows -- --cluster a100_80g --rows ONE.csv=vtrain_profile --rows
//   MANY.csv=megatron_2021 --weights 1,3.5 --halves

#include <cmath>  // std::isfinite
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "foresight/cluster.h"
#include "foresight/dialect.h"
#include "foresight/plan_cluster.h"
#include "foresight/shipped.h"
#include "tools/plan/fit.h"
#include "tools/plan/held_to.h"
#include "tools/plan/measured_rows.h"
#include "tools/plan/vtrain.h"

ABSL_FLAG(lockstep::RepeatedFlag, rows, {}, "FILE.csv=DIALECT, may be repeated");
ABSL_FLAG(std::string, weights, "", "of a row's error in each of these files: 1,3.5; default: 1");
ABSL_FLAG(std::string, cluster, "a100_80g", "a cluster's name or TOML file");
ABSL_FLAG(
    std::string, parameters, "",
    "NAME:LOW:HIGH,...: what is fitted, and its bounds; default: all that was fitted for a100_80g");
ABSL_FLAG(double, scale, 0.01, "errors up to here count by their square, larger ones linearly");
ABSL_FLAG(int, rounds, 40, "at most so many");
ABSL_FLAG(bool, halves, false,
          "fits to every other row of each file and judges the others, both ways");

namespace lockstep {
namespace {

absl::StatusOr<std::vector<FitParameter>> Parameters(const std::string& text) {
  std::vector<FitParameter> parameters;
  for (const absl::string_view one : absl::StrSplit(text, ',')) {
    const std::vector<std::string> parts = absl::StrSplit(one, ':');
    FitParameter& parameter = parameters.emplace_back();
    if (parts.size() != 3 || !absl::SimpleAtod(parts[1], &parameter.low) ||
        !absl::SimpleAtod(parts[2], &parameter.high) || !std::isfinite(parameter.low) ||
        !std::isfinite(parameter.high)) {
      return InvalidArgument("--parameters: '", one, "' is not NAME:LOW:HIGH");
    }
    parameter.name = parts[0];
  }
  return parameters;
}

void Print(const Fit& fit, const std::vector<FitParameter>& parameters) {
  for (const FitParameter& parameter : parameters) {
    const auto of_cluster = fit.cluster.fitted.find(parameter.name);
    double value = of_cluster == fit.cluster.fitted.end() ? 0 : of_cluster->second;
    for (const Dialect& dialect : fit.dialects) {
      if (dialect.fitted().contains(parameter.name)) value = dialect.Fitted(parameter.name);
    }
    absl::PrintF("%s = %.4g\n", parameter.name, value);
  }
  absl::PrintF("cost %.6g after %d rounds\n", fit.cost, fit.rounds);
}

absl::StatusOr<int> Run(const std::vector<std::string>& /*words*/) {
  LS_ASSIGN_OR_RETURN(
      const Cluster cluster,
      ReadPlanCluster(ShippedPath("foresight/clusters", absl::GetFlag(FLAGS_cluster))));
  const std::string given = absl::GetFlag(FLAGS_parameters);
  LS_ASSIGN_OR_RETURN(const std::vector<FitParameter> parameters,
                      given.empty() ? VtrainParameters() : Parameters(given));
  const std::vector<std::string> weights = absl::StrSplit(absl::GetFlag(FLAGS_weights), ',');
  std::vector<RecordedRows> recorded;
  std::vector<FitRows> rows;
  for (const std::string& one : absl::GetFlag(FLAGS_rows).values) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(one, absl::MaxSplits('=', 1));
    LS_ASSIGN_OR_RETURN(Dialect dialect,
                        Dialect::Read(ShippedPath("foresight/dialects", parts.second)));
    LS_ASSIGN_OR_RETURN(std::vector<MeasuredRow> measured, ReadMeasuredRows(UserPath(parts.first)));
    LS_ASSIGN_OR_RETURN(recorded.emplace_back(), RecordRows(std::move(measured), dialect, cluster));
    FitRows& fitted = rows.emplace_back();
    fitted.dialect = std::move(dialect);
    if (rows.size() <= weights.size() && !weights[rows.size() - 1].empty() &&
        !(absl::SimpleAtod(weights[rows.size() - 1], &fitted.weight) &&
          std::isfinite(fitted.weight))) {
      return InvalidArgument("--weights: '", weights[rows.size() - 1], "' is no finite number");
    }
  }
  if (rows.empty()) return InvalidArgument("--rows FILE.csv=DIALECT is missing");
  for (size_t i = 0; i < rows.size(); ++i) rows[i].recorded = &recorded[i];
  const FitOptions options = {.scale = absl::GetFlag(FLAGS_scale),
                              .rounds = absl::GetFlag(FLAGS_rounds)};
  struct Side {
    const char* name;
    size_t first, stride;
  };
  const Side all = {"fitted to all rows", 0, 1};
  const std::vector<Side> halves = {{"fitted to rows 1, 3, ..., judged on the others", 0, 2},
                                    {"fitted to rows 2, 4, ..., judged on the others", 1, 2},
                                    all};
  for (const Side& side : absl::GetFlag(FLAGS_halves) ? halves : std::vector<Side>{all}) {
    ChooseRows(side.first, side.stride, rows);
    LS_ASSIGN_OR_RETURN(const Fit fit, FitTo(rows, cluster, parameters, options));
    absl::PrintF("%s\n", side.name);
    Print(fit, parameters);
    LS_ASSIGN_OR_RETURN(const std::vector<Judgement> judgements, JudgeFit(fit, rows));
    for (size_t i = 0; i < rows.size(); ++i) {
      absl::PrintF("%s: %s\n", fit.dialects[i].name(), judgements[i].ToString());
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Fits the numbers of a cluster and of dialects to measured steps, prints them, and "
                "judges them.",
       .files = {__FILE__}},
      lockstep::Run);
}
