// The search for the commit that moved a curve.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/curve/git_history.h"

namespace lockstep {

// What was found out about a commit.
enum class CommitVerdict {
  kAsGood,   // it has the good commit's curve
  kMoved,    // it has another one
  kSkipped,  // it has none: it cannot be built or run
};

// A commit to try, and how far the search is.
struct CommitTrial {
  std::string commit;
  int64_t left = 0;    // commits that may still be the one, this one and the bad one among them
  int64_t trials = 0;  // that are still to come, about: each halves what is left
};

struct FoundCommit {
  std::string commit;     // the first that is known to have moved
  std::string good = {};  // the last that was found to have the good curve, or else the given one
  // Commits before it that cannot be built or run; any of them may have moved the curve.
  std::vector<std::string> untried = {};
  int64_t tried = 0;  // commits that were built and run, or skipped
};

// Searches the ancestors of `bad`, whose curve has moved, that are none of `good`, whose curve has
// not: each trial is the commit that halves what is left, as `git bisect` has it. Where commits are
// skipped, the next ones are taken from elsewhere, because neighbours of what does not build often
// do not build either. Errors are those of `test` and of git.
absl::StatusOr<FoundCommit> FindFirstMoved(
    const GitHistory& history, const std::string& good, const std::string& bad, HistoryWalk walk,
    const std::function<absl::StatusOr<CommitVerdict>(const CommitTrial&)>& test);

}  // namespace lockstep
