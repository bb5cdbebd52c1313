// Runs of a workload as it was at a commit.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/report/metrics.h"
#include "tools/curve/git_history.h"

namespace lockstep {

struct CommitRunOptions {
  std::string workload;    // a folder of experiments/
  std::string strategy;    // "ddp"
  int64_t steps = 0;       // of each run
  std::string scratch;     // folder for the builds and the runs
  std::string disk_cache;  // Bazel's; empty: the one that the user's .bazelrc names, if any
  std::vector<std::string> arguments = {};  // for the workload's program
};

// Builds and runs commits in a work tree, with an output folder of Bazel's that they share, so that
// each build compiles what has changed since the one before. Bazel's server and that folder go with
// this object.
class CommitRuns {
 public:
  CommitRuns(const GitWorkTree& tree, CommitRunOptions options, CommandRunner run = RunProcess)
      : tree_(tree), options_(std::move(options)), run_(std::move(run)) {}
  CommitRuns(const CommitRuns&) = delete;
  CommitRuns& operator=(const CommitRuns&) = delete;
  ~CommitRuns();

  // Checks the commit out and builds the program of workload and strategy. Aborted, with the first
  // line of Bazel's complaint, for a commit that does not build; Cancelled when interrupted.
  absl::Status Build(const std::string& commit);

  // Trains the commit that was built last, without validation and checkpoints, and returns the run
  // directory. `assignments` are for --set. Aborted, with what the program says, for a run that
  // fails; Cancelled when interrupted.
  absl::StatusOr<std::string> Train(const std::vector<std::string>& assignments);

  // The losses of such a run.
  absl::StatusOr<std::vector<LossPoint>> TrainLosses();

 private:
  std::vector<std::string> Bazel(std::vector<std::string> command) const;

  const GitWorkTree& tree_;
  const CommitRunOptions options_;
  const CommandRunner run_;
  int64_t runs_ = 0;
};

}  // namespace lockstep
