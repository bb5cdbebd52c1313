// The commits of a git repository, as a search through them needs it.

#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/subprocess.h"

namespace lockstep {

// Starts a program and waits for its end, as RunProcess does. Tests put others in its place.
using CommandRunner = std::function<absl::StatusOr<ProcessResult>(const ProcessOptions&)>;

// Which commits lie between two of them.
enum class HistoryWalk {
  kAllCommits,   // every ancestor of the later one
  kFirstParent,  // first parents alone: merges stand for the branches that they bring in
};

// Reads a repository. Nothing in it is changed: no branch, no reference, no file. Where git was
// interrupted by a signal, members return Cancelled.
class GitHistory {
 public:
  // The repository that has `folder`. FailedPrecondition where there is none, or no git.
  static absl::StatusOr<GitHistory> Open(const std::string& folder, CommandRunner run = RunProcess);

  // The full name of the commit that a revision means. InvalidArgument where it means none.
  absl::StatusOr<std::string> CommitOf(const std::string& revision) const;

  // "1a2b3c4d5e6f Fix the loss's scale (2026-03-01)"
  absl::StatusOr<std::string> Describe(const std::string& commit) const;

  // Whether `commit` is `later`, or one of its ancestors.
  absl::StatusOr<bool> IsAncestor(const std::string& commit, const std::string& later) const;

  // The first parent of a commit; empty for one that has none.
  absl::StatusOr<std::string> ParentOf(const std::string& commit) const;

  // The ancestors of `bad` that are no ancestors of any of `good`, without `bad`: first those that
  // halve what is left of a search.
  absl::StatusOr<std::vector<std::string>> Between(const std::vector<std::string>& good,
                                                   const std::string& bad, HistoryWalk walk) const;

  // The names in a folder of a commit's tree; none where there is no such folder.
  absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& commit,
                                                      const std::string& folder) const;

  // The first tracked file that differs from the last commit; empty: none does.
  absl::StatusOr<std::string> ChangedFile() const;

  // Runs git on the repository; an error has what git says.
  absl::StatusOr<std::string> Git(std::vector<std::string> arguments) const;

  const std::string& folder() const { return folder_; }

 private:
  GitHistory(std::string git, std::string folder, CommandRunner run)
      : git_(std::move(git)), folder_(std::move(folder)), run_(std::move(run)) {}

  absl::StatusOr<ProcessResult> Start(std::vector<std::string> arguments) const;

  std::string git_;     // the program
  std::string folder_;  // the top of the work tree
  CommandRunner run_;
};

// A work tree of its own, outside of the user's checkout, with the commits of a repository. It is
// taken off the repository's list and removed with this object.
class GitWorkTree {
 public:
  // Makes it at `folder`, which must not exist, with `commit` checked out.
  static absl::StatusOr<GitWorkTree> Add(const GitHistory& history, const std::string& folder,
                                         const std::string& commit);

  GitWorkTree(GitWorkTree&& other) noexcept;
  GitWorkTree& operator=(GitWorkTree&&) = delete;
  GitWorkTree(const GitWorkTree&) = delete;
  GitWorkTree& operator=(const GitWorkTree&) = delete;
  ~GitWorkTree();

  // Checks out another commit, whatever builds have left in tracked files.
  absl::Status CheckOut(const std::string& commit) const;

  const std::string& folder() const { return folder_; }

 private:
  GitWorkTree(const GitHistory& history, std::string folder)
      : history_(history), folder_(std::move(folder)) {}

  const GitHistory& history_;
  std::string folder_;  // empty: moved from
};

}  // namespace lockstep
