#include "tools/bench/foresight/timed_run.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/base/subprocess.h"
#include "nlohmann/json.hpp"
#include "tools/experiment/paths.h"

namespace lockstep {
namespace {

// The largest difference in a table of the summary between what is predicted and what was measured,
// as a fraction of the latter.
double LargestDifference(const nlohmann::json& table) {
  double largest = 0;
  for (const nlohmann::json& entry : table) {
    if (!entry.contains("predicted")) continue;
    const double measured = entry["measured"];
    const double off = std::abs(entry["predicted"].get<double>() - measured);
    largest = std::max(largest, off / std::max(1.0, measured));
  }
  return largest;
}

}  // namespace

absl::StatusOr<TimedRun> TimeRun(const RunToTime& run) {
  LS_ASSIGN_OR_RETURN(const TemporaryDirectory folder, TemporaryDirectory::Create());
  const std::string config = folder.path() + "/model.toml", out = folder.path() + "/run";
  LS_RETURN_IF_ERROR(WriteFileAtomically(config, run.config));
  ProcessOptions options = {.arguments = run.launcher, .environment = run.environment};
  options.arguments.insert(options.arguments.end(),
                           {run.program, "--config", config, "--out", out});
  std::vector<std::string> assignments = run.assignments;
  assignments.insert(assignments.end(), {"validation.batches=2", "checkpoint.keep=0"});
  for (const std::string& assignment : assignments) {
    options.arguments.insert(options.arguments.end(), {"--set", assignment});
  }
  LS_ASSIGN_OR_RETURN(const ProcessResult result, RunProcess(options));
  if (result.interrupted) return absl::CancelledError("interrupted");
  TimedRun timed;
  if (!result.ok()) {
    timed.skipped = result.err.substr(0, result.err.find('\n'));
    if (timed.skipped.empty()) timed.skipped = result.Describe();
    return timed;
  }
  LS_ASSIGN_OR_RETURN(const std::string text, ReadFile(out + "/summary.json"));
  const auto summary = nlohmann::json::parse(text);
  timed.measured = summary["step_seconds"];
  if (summary.contains("time_of_step")) {
    timed.predicted = summary["time_of_step"]["slowest rank"]["predicted"];
  } else {
    timed.skipped = absl::StrCat("not predicted: ", summary.value("time_not_predicted", "?"));
  }
  timed.memory_off = LargestDifference(summary["memory"]);
  timed.bytes_off = std::max(LargestDifference(summary["traffic_bytes_per_step"]),
                             LargestDifference(summary["traffic_bytes_once"]));
  return timed;
}

}  // namespace lockstep
