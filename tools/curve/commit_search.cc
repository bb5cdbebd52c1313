#include "tools/curve/commit_search.h"

#include <set>
#include <utility>

#include "core/base/status.h"

namespace lockstep {
namespace {

// Halvings that `count` commits take until one is left.
int64_t Halvings(int64_t count) {
  int64_t halvings = 0;
  for (int64_t left = count; left > 1; left = (left + 1) / 2) ++halvings;
  return halvings;
}

}  // namespace

absl::StatusOr<FoundCommit> FindFirstMoved(
    const GitHistory& history, const std::string& good, const std::string& bad, HistoryWalk walk,
    const std::function<absl::StatusOr<CommitVerdict>(const CommitTrial&)>& test) {
  constexpr size_t kQuarters = 4;
  std::vector<std::string> known_good = {good};
  std::set<std::string> skipped;
  size_t skipped_in_a_row = 0;
  FoundCommit found = {.commit = bad, .good = good};
  while (true) {
    LS_ASSIGN_OR_RETURN(const std::vector<std::string> between,
                        history.Between(known_good, found.commit, walk));
    std::vector<std::string> open;
    found.untried.clear();
    for (const std::string& commit : between) {
      (skipped.contains(commit) ? found.untried : open).push_back(commit);
    }
    if (open.empty()) return found;
    const std::string commit = open[skipped_in_a_row % kQuarters * open.size() / kQuarters];
    const auto left = static_cast<int64_t>(between.size()) + 1;
    LS_ASSIGN_OR_RETURN(const CommitVerdict verdict,
                        test({.commit = commit, .left = left, .trials = Halvings(left)}));
    ++found.tried;
    skipped_in_a_row = verdict == CommitVerdict::kSkipped ? skipped_in_a_row + 1 : 0;
    switch (verdict) {
      case CommitVerdict::kAsGood:
        known_good.push_back(commit);
        found.good = commit;
        break;
      case CommitVerdict::kMoved:
        found.commit = commit;
        break;
      case CommitVerdict::kSkipped:
        skipped.insert(commit);
        break;
    }
  }
}

}  // namespace lockstep
