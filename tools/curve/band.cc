// Makes the band that legitimate runs of a workload stay in:
//
//   ./bazelw run //tools/curve:band -- --workload gpt_markov
//   ./bazelw run //tools/divergence -- --band runs/gpt_markov/band.csv THEIR/losses.csv

#include <cstdio>
#include <cstdlib>  // std::getenv
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "strategies/single/single.h"
#include "tools/curve/band_report.h"
#include "tools/curve/loss_band.h"
#include "tools/curve/reordered_runs.h"
#include "tools/experiment/outputs.h"
#include "tools/experiment/paths.h"
#include "tools/experiment/source_tree.h"
#include "tools/report/text.h"

ABSL_FLAG(std::string, workload, "", "a folder of experiments/");
ABSL_FLAG(std::string, workload_file, "", "a workload.toml in place of --workload");
ABSL_FLAG(int64_t, steps, 50, "how many steps the band has");
ABSL_FLAG(int64_t, runs, 60, "how many reordered runs it is made of");
ABSL_FLAG(double, rate, 0.05,
          "of false alarms: how many of a hundred legitimate runs, over 100, "
          "may leave the band");
ABSL_FLAG(uint64_t, seed, 1, "of the choice of reorderings");
ABSL_FLAG(std::string, output, "", "the file; default runs/<workload>/band.csv");
ABSL_FLAG(std::string, data, "", "folder of data sets; default: the environment's LOCKSTEP_DATA");
ABSL_FLAG(lockstep::RepeatedFlag, set, {},
          "KEY=VALUE for all runs, as trainers take it; repeatable");

namespace lockstep {
namespace {

constexpr int kInterruptedExitCode = 130;  // as a shell tells of SIGINT
constexpr int64_t kMostRuns = 100'000, kMostSteps = 1'000'000;

absl::StatusOr<std::string> FileOfFlags() {
  const std::string workload = absl::GetFlag(FLAGS_workload);
  const std::string file = absl::GetFlag(FLAGS_workload_file);
  if (workload.empty() == file.empty()) {
    return absl::InvalidArgumentError(
        "give --workload, a folder of experiments/, or "
        "--workload_file");
  }
  if (!file.empty()) return UserPath(file);
  LS_ASSIGN_OR_RETURN(const std::string tree, SourceTree());
  return WorkloadFile(tree, workload);
}

absl::Status CheckFlags() {
  const double rate = absl::GetFlag(FLAGS_rate);
  LS_RETURN_IF_ERROR(CheckRange("steps", absl::GetFlag(FLAGS_steps), 1, kMostSteps));
  LS_RETURN_IF_ERROR(CheckRange("runs", absl::GetFlag(FLAGS_runs), 1, kMostRuns));
  if (!(rate >= 0.001 && rate <= 0.5)) {
    return InvalidArgument("--rate ", rate, ": give a number from 0.001 to 0.5");
  }
  if (absl::GetFlag(FLAGS_runs) >= FewestRuns(rate)) return absl::OkStatus();
  return InvalidArgument("--runs ", absl::GetFlag(FLAGS_runs), ": a rate of ", rate,
                         " false alarms takes at least ", FewestRuns(rate), " runs");
}

absl::StatusOr<int> Run() {
  LS_RETURN_IF_ERROR(CheckFlags());
  LS_ASSIGN_OR_RETURN(const std::string file, FileOfFlags());
  LS_ASSIGN_OR_RETURN(const TemporaryDirectory scratch, TemporaryDirectory::Create());
  const char* data = std::getenv("LOCKSTEP_DATA");
  const std::string named = absl::GetFlag(FLAGS_data);
  ReorderedRunsOptions options = {.steps = absl::GetFlag(FLAGS_steps),
                                  .runs = absl::GetFlag(FLAGS_runs),
                                  .seed = absl::GetFlag(FLAGS_seed)};
  options.workload = {.configs = {file},
                      .assignments = absl::GetFlag(FLAGS_set).values,
                      .out = scratch.path(),
                      .data = named.empty() ? (data == nullptr ? "" : data) : UserPath(named)};
  options.ended = [](int64_t, const std::string& line) {
    std::fprintf(stderr, "%s\n", line.c_str());
  };
  LS_ASSIGN_OR_RETURN(const TrainingRun run, CheckReorderedRun(options, SingleStrategy()));
  const std::string flag = absl::GetFlag(FLAGS_output);
  const std::string output =
      UserPath(flag.empty() ? absl::StrCat("runs/", run.workload, "/band.csv") : flag);
  LS_RETURN_IF_ERROR(
      CheckOutputs({OutputThatBeginsWith(output, "a band of losses", "# lockstep band")}, {file}));
  const absl::StatusOr<std::vector<std::vector<LossPoint>>> curves =
      TrainAllReordered(options, SingleStrategy());
  if (absl::IsCancelled(curves.status())) return kInterruptedExitCode;
  LS_RETURN_IF_ERROR(curves.status());
  LS_ASSIGN_OR_RETURN(const LossBand band,
                      MakeBand(run.workload, *curves, absl::GetFlag(FLAGS_rate)));
  LS_RETURN_IF_ERROR(WriteBand(output, band));
  std::fputs(TextOf(BandTable(band)).c_str(), stdout);
  std::printf(
      "The band of %ld runs, which a legitimate run leaves with a probability of %g at "
      "most, is %s\n",
      static_cast<long>(band.runs), band.rate, output.c_str());
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Trains a workload under many admissible cuts, orders and points of rounding of "
                "its sums, and writes\nthe band that the losses of such runs stay in.",
       .files = {__FILE__, lockstep::kOverwriteFlagFile}},
      [](const auto&) { return lockstep::Run(); });
}
