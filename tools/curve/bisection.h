// Which commit moved a workload's curve, and what it changed first.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/curve/commit_search.h"
#include "tools/curve/git_history.h"
#include "tools/report/report.h"

namespace lockstep {

struct BisectionOptions {
  std::string repository;  // a folder of the user's checkout
  std::string good;        // revision with the curve that was meant
  std::string bad = {};    // revision with another one; empty: HEAD
  std::string workload, strategy;
  int64_t steps = 20;  // that are compared
  HistoryWalk walk = HistoryWalk::kAllCommits;
  std::string disk_cache = {};              // as in CommitRunOptions
  std::vector<std::string> arguments = {};  // for the workload's program
};

// What a search calls besides git: tests put others in their place.
struct BisectionHooks {
  CommandRunner run = RunProcess;
  std::function<void(const std::string& line)> say = [](const std::string&) {};  // progress
};

// Builds and runs the good commit, the bad one, and those between that halve what is left, in a
// temporary work tree, and compares their losses to the bit. Then runs the first commit whose curve
// moved, and its parent, with probes, and reports the first tensor that differs. Nothing is left
// behind, whatever the outcome.
//
// Errors, a message each: FailedPrecondition where the folder is in no repository, where the
// repository or one of the two commits has no such workload, where the checkout has changes that
// are in no commit (if HEAD is meant), where good is no ancestor of bad, where one of the two does
// not build or run; NotFound where both have the same curve; InvalidArgument for revisions that do
// not exist; Cancelled on Ctrl-C.
absl::StatusOr<Report> Bisect(const BisectionOptions& options, const BisectionHooks& hooks = {});

}  // namespace lockstep
