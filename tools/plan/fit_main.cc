// Fits the numbers of clusters and dialects to measured steps, and judges them.
//
//   ./bazelw run //tools/plan:fit_rows -- --cluster a100_80g --rows ONE.csv=vtrain_profile --rows
//   MANY.csv=megatron_2021 --weights 1,3.5 --halves

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
#include "foresight/shipped.h"
#include "tools/plan/fit.h"
#include "tools/plan/held_to.h"
#include "tools/plan/measured_rows.h"

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

// The numbers of a100_80g and Megatron's dialects, within the data sheet.
constexpr char kParameters[] =
    "product_efficiency:0.4:1,wave_seconds:0:4e-6,pass_efficiency:0.3:1,"
    "map_efficiency:0.25:1,single_product_efficiency:0.25:1,adapter_efficiency:0.1:1,"
    "host_forward:2e-6:1.2e-4,host_backward:2e-6:1e-4,host_unfused:0:2e-3,"
    "visible_gaps:0:1,skew:0:1.5e-3,steady_skew:0:1.5e-3,"
    "single_loss_bytes:0:80,loss_bytes:0:60";

absl::StatusOr<std::vector<FitParameter>> Parameters(const std::string& text) {
  std::vector<FitParameter> parameters;
  for (const absl::string_view one : absl::StrSplit(text, ',')) {
    const std::vector<std::string> parts = absl::StrSplit(one, ':');
    FitParameter& parameter = parameters.emplace_back();
    if (parts.size() != 3 || !absl::SimpleAtod(parts[1], &parameter.low) ||
        !absl::SimpleAtod(parts[2], &parameter.high)) {
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
  LS_ASSIGN_OR_RETURN(const Cluster cluster,
                      ReadCluster(ShippedPath("foresight/clusters", absl::GetFlag(FLAGS_cluster))));
  const std::string given = absl::GetFlag(FLAGS_parameters);
  LS_ASSIGN_OR_RETURN(const std::vector<FitParameter> parameters,
                      Parameters(given.empty() ? kParameters : given));
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
        !absl::SimpleAtod(weights[rows.size() - 1], &fitted.weight)) {
      return InvalidArgument("--weights: '", weights[rows.size() - 1], "' is no number");
    }
  }
  if (rows.empty()) return InvalidArgument("--rows FILE.csv=DIALECT is missing");
  for (size_t i = 0; i < rows.size(); ++i) rows[i].recorded = &recorded[i];
  const FitOptions options = {.scale = absl::GetFlag(FLAGS_scale),
                              .rounds = absl::GetFlag(FLAGS_rounds)};
  // Every other row; or all.
  const std::vector<int> sides =
      absl::GetFlag(FLAGS_halves) ? std::vector<int>{0, 1, 2} : std::vector<int>{2};
  for (const int side : sides) {
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].chosen.clear();
      for (size_t row = 0; row < recorded[i].rows.size(); ++row) {
        if (side == 2 || static_cast<int>(row % 2) == side) rows[i].chosen.push_back(row);
      }
    }
    LS_ASSIGN_OR_RETURN(const Fit fit, FitTo(rows, cluster, parameters, options));
    absl::PrintF("%s\n", side == 2   ? "fitted to all rows"
                         : side == 0 ? "fitted to rows 1, 3, ..., judged on the others"
                                     : "fitted to rows 2, 4, ..., judged on the others");
    Print(fit, parameters);
    for (size_t i = 0; i < rows.size(); ++i) {
      LS_ASSIGN_OR_RETURN(const std::vector<double> predicted,
                          Predict(recorded[i], fit.dialects[i], fit.cluster));
      std::vector<MeasuredRow> judged;
      std::vector<double> times;
      for (size_t row = 0; row < predicted.size(); ++row) {
        if (side != 2 && static_cast<int>(row % 2) == side) continue;
        judged.push_back(recorded[i].rows[row]);
        times.push_back(predicted[row]);
      }
      absl::PrintF("%s: %s\n", fit.dialects[i].name(), Judge(judged, times).ToString());
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
