#include "tools/curve/git_history.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "tools/experiment/paths.h"

namespace lockstep {
namespace {

// git's own words without its prefix, on one line.
std::string Said(const ProcessResult& result) {
  const std::vector<std::string> lines =
      absl::StrSplit(absl::StripAsciiWhitespace(result.err), '\n');
  const std::string first = lines[0];
  for (const char* prefix : {"fatal: ", "error: "}) {
    if (absl::StartsWith(first, prefix)) return first.substr(std::string(prefix).size());
  }
  return first.empty() ? result.Describe() : first;
}

std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

}  // namespace

absl::StatusOr<GitHistory> GitHistory::Open(const std::string& folder, CommandRunner run) {
  const std::string git = FindOnPath("git");
  if (git.empty()) {
    return absl::FailedPreconditionError("there is no git on PATH; install it first");
  }
  const GitHistory here(git, folder, std::move(run));
  LS_ASSIGN_OR_RETURN(const ProcessResult result, here.Start({"rev-parse", "--show-toplevel"}));
  if (!result.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(folder, " is in no work tree of git, so it has no commits: ", Said(result)));
  }
  return GitHistory(git, std::string(absl::StripAsciiWhitespace(result.out)), here.run_);
}

absl::StatusOr<ProcessResult> GitHistory::Start(std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), {git_, "-C", folder_});
  LS_ASSIGN_OR_RETURN(ProcessResult result, run_({.arguments = std::move(arguments)}));
  if (result.interrupted) return absl::CancelledError("interrupted");
  return result;
}

absl::StatusOr<std::string> GitHistory::Git(std::vector<std::string> arguments) const {
  LS_ASSIGN_OR_RETURN(const ProcessResult result, Start(std::move(arguments)));
  if (!result.ok()) return absl::FailedPreconditionError(absl::StrCat("git: ", Said(result)));
  return result.out;
}

absl::StatusOr<std::string> GitHistory::CommitOf(const std::string& revision) const {
  // "^{commit}" refuses files and folders; what begins with "-" would be an option.
  if (!absl::StartsWith(revision, "-")) {
    LS_ASSIGN_OR_RETURN(const ProcessResult result, Start({"rev-parse", "--verify", "--quiet",
                                                           absl::StrCat(revision, "^{commit}")}));
    if (result.ok()) return std::string(absl::StripAsciiWhitespace(result.out));
  }
  return InvalidArgument("'", revision, "' names no commit of ", folder_,
                         "; give a branch, a tag or the beginning of a commit's name");
}

absl::StatusOr<std::string> GitHistory::Describe(const std::string& commit) const {
  LS_ASSIGN_OR_RETURN(const std::string text,
                      Git({"log", "-1", "--abbrev=12", "--format=%h %s (%cs)", commit}));
  return std::string(absl::StripAsciiWhitespace(text));
}

absl::StatusOr<bool> GitHistory::IsAncestor(const std::string& commit,
                                            const std::string& later) const {
  LS_ASSIGN_OR_RETURN(const ProcessResult result,
                      Start({"merge-base", "--is-ancestor", commit, later}));
  if (result.exit_code > 1) return absl::FailedPreconditionError(Said(result));
  return result.ok();
}

absl::StatusOr<std::string> GitHistory::ParentOf(const std::string& commit) const {
  LS_ASSIGN_OR_RETURN(const std::string parents,
                      Git({"rev-list", "--max-count=1", "--parents", commit}));
  const std::vector<std::string> names = absl::StrSplit(absl::StripAsciiWhitespace(parents), ' ');
  return names.size() < 2 ? std::string() : names[1];
}

absl::StatusOr<std::vector<std::string>> GitHistory::Between(const std::vector<std::string>& good,
                                                             const std::string& bad,
                                                             HistoryWalk walk) const {
  std::vector<std::string> arguments = {"rev-list", "--bisect-all"};
  if (walk == HistoryWalk::kFirstParent) arguments.push_back("--first-parent");
  arguments.push_back(bad);
  arguments.push_back("--not");
  arguments.insert(arguments.end(), good.begin(), good.end());
  LS_ASSIGN_OR_RETURN(const std::string listing, Git(std::move(arguments)));
  std::vector<std::string> commits;
  for (const std::string& line : Lines(listing)) {  // "<commit> (dist=3, refs)"
    const std::string commit = line.substr(0, line.find(' '));
    if (commit != bad) commits.push_back(commit);
  }
  return commits;
}

absl::StatusOr<std::vector<std::string>> GitHistory::ListFolder(const std::string& commit,
                                                                const std::string& folder) const {
  LS_ASSIGN_OR_RETURN(const ProcessResult result,
                      Start({"ls-tree", "--name-only", absl::StrCat(commit, ":", folder)}));
  return result.ok() ? Lines(result.out) : std::vector<std::string>();
}

absl::StatusOr<std::string> GitHistory::ChangedFile() const {
  LS_ASSIGN_OR_RETURN(const std::string listing, Git({"diff", "--name-only", "HEAD"}));
  const std::vector<std::string> files = Lines(listing);
  return files.empty() ? std::string() : files[0];
}

absl::StatusOr<GitWorkTree> GitWorkTree::Add(const GitHistory& history, const std::string& folder,
                                             const std::string& commit) {
  GitWorkTree tree(history, folder);  // removes what an interrupted git leaves
  LS_RETURN_IF_ERROR(
      history.Git({"worktree", "add", "--quiet", "--detach", folder, commit}).status());
  return tree;
}

GitWorkTree::GitWorkTree(GitWorkTree&& other) noexcept
    : history_(other.history_), folder_(std::exchange(other.folder_, "")) {}

GitWorkTree::~GitWorkTree() {
  if (folder_.empty()) return;
  // git's own removal takes the tree off the list, too; pruning does so where that was interrupted.
  if (history_.Git({"worktree", "remove", "--force", folder_}).ok()) return;
  RemoveTree(folder_);
  history_.Git({"worktree", "prune"}).IgnoreError();
}

absl::Status GitWorkTree::CheckOut(const std::string& commit) const {
  return history_.Git({"-C", folder_, "checkout", "--quiet", "--force", "--detach", commit})
      .status();
}

}  // namespace lockstep
