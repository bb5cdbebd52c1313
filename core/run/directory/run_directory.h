#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/file.h"

namespace lockstep {

// In a run directory: marks and locks it (RunDirectory). Written when a run begins to use it.
inline constexpr char kRunLockFile[] = "run.lock";

// The directory of a run, held by one program at a time. Its file run.lock marks it as a run's, and
// carries an advisory lock (flock) while a program uses it, and that program's host and process.
// Only marked directories are ever set aside, and those of versions before the mark that cannot be
// anything else: they hold a losses.csv with our header, a metrics.jsonl and a config.toml.
//
//   LS_ASSIGN_OR_RETURN(auto directory, RunDirectory::Claim(out, RunDirectory::Use::kNew));
//   ... whatever may still go wrong; the disk is as it was ...
//   LS_RETURN_IF_ERROR(directory->Begin());
class RunDirectory {
 public:
  enum class Use {
    kNew,     // a run from the first step; an earlier run in the directory is set aside
    kResume,  // an earlier run goes on
    // An earlier run goes on, from a checkpoint that only another machine may see.
    kResumeFromElsewhere,
  };

  // Finds out whether this program may use the directory `out`, and locks it if it is marked.
  // Changes nothing. FailedPrecondition, with the remedy, for a directory that another program
  // holds (its host and process are named), for one that is not a run's, and for kResume where
  // there is no checkpoint.
  static absl::StatusOr<std::shared_ptr<RunDirectory>> Claim(const std::string& out, Use use);

  // For ranks that leave the directory to rank 0 of another process.
  static std::shared_ptr<RunDirectory> OfOtherProcess(const std::string& out);

  // Makes the directory ready for the run's files: sets an earlier run aside as <out>.1, <out>.2,
  // ..., which the standard error stream is told, makes, marks and locks the directory, and removes
  // what a killed program has left half written. By one thread. Does nothing a second time, or for
  // a directory of another process.
  absl::Status Begin();

  // Removes what ranks that were lost have left half written, and what they left to look at. After
  // Begin, while no rank runs.
  void Tidy() const;

  // Whether the run's files may be written: Begin has succeeded, here or, as Agreed says, on rank
  // 0.
  bool has_begun() const { return has_begun_; }
  void Agreed();
  // Whether it has begun and was not removed since: a directory that somebody has removed is not
  // made again for the sake of a message.
  bool is_there() const;
  // The error that the run ends with after `error`: DirectoryWasRemoved where it has begun and was
  // removed since, whatever failed first for the lack of it. An error that says more than that a
  // file is missing is told behind it.
  absl::Status Explain(const absl::Status& error) const;

 private:
  RunDirectory(std::string out, Use use, bool is_own)
      : out_(std::move(out)), use_(use), is_own_(is_own) {}

  // Whether no program has begun a run here since Claim found no mark.
  absl::Status CheckStillUnmarked() const;
  absl::Status SetAside();
  absl::Status MarkAndLock();

  const std::string out_;
  const Use use_;
  const bool is_own_;
  FileDescriptor lock_;
  std::atomic<bool> has_begun_ = false;
  std::atomic<bool> had_lock_file_ = false;  // when it had begun; not on hosts without the disk
};

// Leaves the message of `error` as error.txt in a directory that no run has used yet, so that
// whoever starts several runs finds it there. Otherwise, and where that fails, does nothing.
void LeaveErrorInNewDirectory(const std::string& out, const absl::Status& error);

}  // namespace lockstep
