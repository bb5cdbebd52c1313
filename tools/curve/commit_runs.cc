#include "tools/curve/commit_runs.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/file.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

// The line of a program's output that says what is wrong: the first that begins with "ERROR", or
// the first at all.
std::string Complaint(const ProcessResult& result) {
  const std::vector<std::string> lines =
      absl::StrSplit(absl::StripAsciiWhitespace(result.err), '\n');
  for (const std::string& line : lines) {
    if (absl::StartsWith(line, "ERROR")) return line;
  }
  return lines[0].empty() ? result.Describe() : lines[0];
}

}  // namespace

std::vector<std::string> CommitRuns::Bazel(std::vector<std::string> command) const {
  command.insert(command.begin(), {tree_.folder() + "/bazelw",
                                   absl::StrCat("--output_base=", options_.scratch, "/bazel")});
  return command;
}

CommitRuns::~CommitRuns() {
  const std::string output = options_.scratch + "/bazel";
  if (!PathExists(output)) return;  // nothing was built
  // Stops the server and removes the folder, parts of which may be read-only.
  run_({.arguments = Bazel({"clean", "--expunge"})}).IgnoreError();
  RemoveTree(output);
}

absl::Status CommitRuns::Build(const std::string& commit) {
  LS_RETURN_IF_ERROR(tree_.CheckOut(commit));
  LS_RETURN_IF_ERROR(MakeDirectories(options_.scratch + "/bazel"));
  std::vector<std::string> command = {"build"};
  if (!options_.disk_cache.empty()) {
    command.push_back(absl::StrCat("--disk_cache=", options_.disk_cache));
  }
  command.push_back(absl::StrCat("//experiments/", options_.workload, ":", options_.strategy));
  const absl::StatusOr<ProcessResult> result = run_({.arguments = Bazel(std::move(command))});
  if (!result.ok()) return absl::AbortedError(result.status().message());
  if (result->interrupted) return absl::CancelledError("interrupted");
  if (result->ok()) return absl::OkStatus();
  return absl::AbortedError(Complaint(*result));
}

absl::StatusOr<std::string> CommitRuns::Train(const std::vector<std::string>& assignments) {
  const std::string out = absl::StrCat(options_.scratch, "/runs/", runs_++);
  std::vector<std::string> arguments = {absl::StrCat(tree_.folder(), "/bazel-bin/experiments/",
                                                     options_.workload, "/", options_.strategy)};
  arguments.insert(arguments.end(), options_.arguments.begin(), options_.arguments.end());
  const auto set = [&arguments](const std::string& assignment) {
    arguments.insert(arguments.end(), {"--set", assignment});
  };
  set(absl::StrCat("train.steps=", options_.steps));
  for (const char* assignment : {"validation.every=0", "validation.batches=1", "trace.steps=0",
                                 "checkpoint.every=0", "checkpoint.keep=0"}) {
    set(assignment);
  }
  for (const std::string& assignment : assignments) set(assignment);
  arguments.insert(arguments.end(), {"--out", out});
  const absl::StatusOr<ProcessResult> result = run_({.arguments = std::move(arguments)});
  if (!result.ok()) return absl::AbortedError(result.status().message());
  if (result->interrupted) return absl::CancelledError("interrupted");
  if (!result->ok()) return absl::AbortedError(Complaint(*result));
  return out;
}

absl::StatusOr<std::vector<LossPoint>> CommitRuns::TrainLosses() {
  LS_ASSIGN_OR_RETURN(const std::string out, Train({}));
  absl::StatusOr<std::vector<LossPoint>> losses = ReadLossCurve(out + "/losses.csv");
  if (!losses.ok()) return absl::AbortedError(losses.status().message());
  if (std::ssize(*losses) != options_.steps) {
    return absl::AbortedError(
        absl::StrCat("it left ", losses->size(), " of ", options_.steps, " losses"));
  }
  return losses;
}

}  // namespace lockstep
