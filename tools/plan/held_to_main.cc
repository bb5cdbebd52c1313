// Predicted beside measured steps.
//
//   ./bazelw run //tools/plan:held_to -- --rows FILE.csv --cluster a100_80g --dialect megatron_2021

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "foresight/cluster.h"
#include "foresight/dialect.h"
#include "foresight/plan_cluster.h"
#include "foresight/shipped.h"
#include "tools/plan/held_to.h"
#include "tools/plan/measured_rows.h"
#include "tools/report/text.h"

ABSL_FLAG(std::string, rows, "",
          "a CSV file of measured steps of GPT models, with the columns of vTrain's files");
ABSL_FLAG(std::string, cluster, "a100_80g", "a cluster's name or TOML file");
ABSL_FLAG(std::string, dialect, "megatron_2021", "a dialect's name or TOML file");

namespace lockstep {
namespace {

absl::StatusOr<int> Run(const std::vector<std::string>& /*words*/) {
  const std::string rows_file = absl::GetFlag(FLAGS_rows);
  if (rows_file.empty()) return InvalidArgument("--rows FILE.csv is missing");
  LS_ASSIGN_OR_RETURN(
      const Cluster cluster,
      ReadPlanCluster(ShippedPath("foresight/clusters", absl::GetFlag(FLAGS_cluster))));
  LS_ASSIGN_OR_RETURN(
      const Dialect dialect,
      Dialect::Read(ShippedPath("foresight/dialects", absl::GetFlag(FLAGS_dialect))));
  LS_ASSIGN_OR_RETURN(std::vector<MeasuredRow> rows, ReadMeasuredRows(UserPath(rows_file)));
  LS_ASSIGN_OR_RETURN(const RecordedRows recorded, RecordRows(std::move(rows), dialect, cluster));
  LS_ASSIGN_OR_RETURN(const std::vector<double> predicted, Predict(recorded, dialect, cluster));
  absl::PrintF("%12s %12s %8s\n", "predicted ms", "measured ms", "error");
  for (size_t i = 0; i < predicted.size(); ++i) {
    const MeasuredRow& row = recorded.rows[i];
    absl::PrintF("%12.2f %12.2f %+7.1f%%  %s\n", 1e3 * predicted[i], 1e3 * row.seconds,
                 100 * (predicted[i] / row.seconds - 1), row.name);
  }
  const Judgement judgement = Judge(recorded.rows, predicted);
  const Table by_group = RegretByGroup(judgement);
  absl::PrintF("\n%s\n%s\n%s\n", by_group.title, TextOf(by_group), judgement.ToString());
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Holds the planner to measured steps: prints predicted and measured times and the "
                "error of each row, then the mean, median and largest error, and the regret: how "
                "much longer the mesh takes that the planner prefers than the best measured one, "
                "among rows that differ in mesh alone.",
       .files = {__FILE__}},
      lockstep::Run);
}
