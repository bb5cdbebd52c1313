#include "tools/experiment/run_all.h"

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/subprocess.h"
#include "core/report/error_file.h"

namespace lockstep {
namespace {

// The record of a run that did not come to its end in this process. An earlier run in the directory
// is none of its business.
RunRecord Failed(RunRecord record, const PlannedRun& run, RunRecord::State state,
                 const std::string& problem) {
  record.state = state;
  record.problem = problem;
  if (record.workload.empty()) record.workload = run.workload;
  return record;
}

// Makes one run; `interrupted` becomes true on Ctrl-C.
RunRecord RunOne(const PlannedRun& run, const std::string& out,
                 const std::vector<std::string>& more, bool& interrupted) {
  std::vector<std::string> arguments = {run.program};
  arguments.insert(arguments.end(), more.begin(), more.end());
  arguments.insert(arguments.end(), run.arguments.begin(), run.arguments.end());
  arguments.insert(arguments.end(), {"--out", out});
  RemoveError(out);  // whatever is there later is this run's
  // The summary that a run prints is left out: the comparison follows.
  const absl::StatusOr<ProcessResult> result =
      RunProcess({.arguments = std::move(arguments), .err = ProcessOptions::Stream::kInherit});
  RunRecord record = ReadRunRecord(out);
  if (!result.ok()) {
    return Failed(std::move(record), run, RunRecord::State::kMissing,
                  std::string(result.status().message()));
  }
  interrupted = result->interrupted;
  if (result->ok()) return record;
  std::string reason = record.error;
  if (reason.empty()) {
    reason =
        interrupted ? "interrupted" : absl::StrCat(result->Describe(), ", see its message above");
  }
  if (record.state != RunRecord::State::kUnfinished) {
    return Failed(std::move(record), run, RunRecord::State::kMissing, reason);
  }
  const std::string problem =
      record.error.empty() ? absl::StrCat(record.problem, ": ", reason) : record.problem;
  return Failed(std::move(record), run, RunRecord::State::kUnfinished, problem);
}

// How long `left` runs will take, judged by those that came to their end; "" before the first has.
std::string TimeLeft(double seconds_of_complete, size_t complete, size_t left) {
  if (complete == 0) return "";
  const double mean = seconds_of_complete / static_cast<double>(complete);
  return absl::StrCat(", about ", FormatDuration(mean * static_cast<double>(left)),
                      " left for all");
}

}  // namespace

RunAllResult RunAll(const RunAllOptions& options) {
  RunAllResult result;
  const size_t count = options.runs.size();
  double seconds_of_complete = 0;
  size_t complete = 0;
  for (size_t i = 0; i < count; ++i) {
    const PlannedRun& run = options.runs[i];
    const std::string out = absl::StrCat(options.out, "/", run.name);
    if (result.interrupted) {
      result.records.push_back(Failed(ReadRunRecord(out), run, RunRecord::State::kMissing,
                                      "not run: interrupted before"));
      continue;
    }
    std::fprintf(stderr, "[%zu/%zu] %s%s\n", i + 1, count, run.name.c_str(),
                 TimeLeft(seconds_of_complete, complete, count - i).c_str());
    const int64_t begin = NowNanos();
    result.records.push_back(RunOne(run, out, options.arguments, result.interrupted));
    const RunRecord& record = result.records.back();
    std::fprintf(stderr, "[%zu/%zu] %s: %s\n", i + 1, count, run.name.c_str(),
                 record.complete()
                     ? absl::StrCat("done in ", FormatDuration(SecondsSince(begin))).c_str()
                     : absl::StrCat("FAILED, ", record.problem).c_str());
    if (record.complete()) {
      seconds_of_complete += SecondsSince(begin);
      ++complete;
    }
  }
  return result;
}

}  // namespace lockstep
