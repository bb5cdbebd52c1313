#include "core/run/directory/run_directory.h"

#include <fcntl.h>     // O_CREAT
#include <sys/stat.h>  // fstat, stat

#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/checkpoint/in_memory.h"
#include "core/checkpoint/removed_directory.h"
#include "core/report/error_file.h"
#include "core/report/metrics.h"
#include "core/report/restart_log.h"
#include "core/run/directory/run_lock.h"

namespace lockstep {
namespace {

constexpr char kPostMortem[] = "post_mortem";

std::string LockPath(const std::string& out) { return absl::StrCat(out, "/", kRunLockFile); }

// A losses.csv with our header, and what stands beside it.
bool IsRunWithoutMark(const std::string& out) {
  const absl::StatusOr<std::string> losses = ReadFile(out + "/losses.csv");
  return losses.ok() && absl::StartsWith(*losses, absl::StrCat(kLossesCsv.header, "\n")) &&
         PathExists(out + "/metrics.jsonl") && PathExists(out + "/config.toml");
}

bool HoldsRun(const std::string& out) {
  return PathExists(out + "/losses.csv") || PathExists(out + "/checkpoints");
}

// Whether a launcher (//tools/launch) has begun a run here, whose ranks ended before they had a
// checkpoint. It starts them over from the first step, which leads to the very same rows: nothing
// is lost that setting the directory aside would keep.
bool HoldsAttempt(const std::string& out) {
  const auto checkpoints = ListCheckpoints(out + "/checkpoints");
  return PathExists(absl::StrCat(out, "/", kRestartsFile)) && checkpoints.ok() &&
         checkpoints->empty() && !PathExists(out + "/summary.json");
}

// Whether a directory that is not marked may be made a run's: it is not there, empty, or a run's of
// an older version.
absl::Status CheckUnmarked(const std::string& out) {
  if (!PathExists(out)) return absl::OkStatus();
  LS_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(out));
  if (names.empty() || IsRunWithoutMark(out)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(out, ": holds files that are no run's (\"", names[0], "\"",
                   names.size() > 1 ? absl::StrCat(" and ", names.size() - 1, " more") : "",
                   "), and is left as it is; use another --out, a new or an empty directory"));
}

absl::Status BegunMeanwhile(const std::string& out) {
  return absl::FailedPreconditionError(absl::StrCat(
      out, ": another program has begun a run here at this moment; use another --out"));
}

absl::Status CheckResumable(const std::string& out) {
  LS_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> checkpoints, ListRunCheckpoints(out));
  if (!checkpoints.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("--resume: ", out,
                   "/checkpoints holds no checkpoint to go on from; name the "
                   "run's directory by --out, or start from the first step without --resume"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<RunDirectory>> RunDirectory::Claim(const std::string& out, Use use) {
  if (PathExists(out) && !IsDirectory(out)) {
    return absl::FailedPreconditionError(
        absl::StrCat("\"", out, "\" is a file and cannot be a run directory; use another --out"));
  }
  std::shared_ptr<RunDirectory> directory(new RunDirectory(out, use, /*is_own=*/true));
  absl::StatusOr<FileDescriptor> lock = OpenRegularFile(LockPath(out), O_RDWR);
  absl::Status unmarked;
  if (absl::IsNotFound(lock.status())) {
    unmarked = CheckUnmarked(out);
    // Its files may be those of a program that has begun a run between these two looks.
    if (!unmarked.ok()) lock = OpenRegularFile(LockPath(out), O_RDWR);
  }
  if (lock.ok()) {
    LS_RETURN_IF_ERROR(LockRun(LockPath(out), *lock));
    directory->lock_ = *std::move(lock);
  } else if (absl::IsNotFound(lock.status())) {
    LS_RETURN_IF_ERROR(unmarked);
  } else if (PathExists(out)) {
    return lock.status();
  }
  if (use == Use::kResume) LS_RETURN_IF_ERROR(CheckResumable(out));
  return directory;
}

std::shared_ptr<RunDirectory> RunDirectory::OfOtherProcess(const std::string& out) {
  return std::shared_ptr<RunDirectory>(new RunDirectory(out, Use::kResume, /*is_own=*/false));
}

absl::Status RunDirectory::CheckStillUnmarked() const {
  const absl::StatusOr<FileDescriptor> lock = OpenRegularFile(LockPath(out_), O_RDWR);
  // Where no directory is, the one to make it says what is in its way.
  if (absl::IsNotFound(lock.status()) || !PathExists(out_)) return absl::OkStatus();
  LS_RETURN_IF_ERROR(lock.status());
  LS_RETURN_IF_ERROR(LockRun(LockPath(out_), *lock));  // names the program that holds it
  return BegunMeanwhile(out_);
}

absl::Status RunDirectory::Begin() {
  if (!is_own_ || has_begun_) return absl::OkStatus();
  if (!lock_.is_open()) LS_RETURN_IF_ERROR(CheckStillUnmarked());
  // The lock of what is set aside is held until the new one is.
  FileDescriptor earlier;
  if (use_ == Use::kNew && HoldsRun(out_) && !(lock_.is_open() && HoldsAttempt(out_))) {
    if (!lock_.is_open()) LS_RETURN_IF_ERROR(CheckUnmarked(out_));
    LS_RETURN_IF_ERROR(SetAside());
    earlier = std::exchange(lock_, FileDescriptor());
  }
  LS_RETURN_IF_ERROR(MakeDirectories(out_));
  LS_RETURN_IF_ERROR(MarkAndLock());
  if (use_ == Use::kNew) LS_RETURN_IF_ERROR(WriteRunId(out_));
  Tidy();
  Agreed();
  return absl::OkStatus();
}

void RunDirectory::Agreed() {
  had_lock_file_ = PathExists(LockPath(out_));
  has_begun_ = true;
}

bool RunDirectory::is_there() const {
  return has_begun_ && (!had_lock_file_ || !IsGone(LockPath(out_)));
}

absl::Status RunDirectory::Explain(const absl::Status& error) const {
  if (error.ok() || !has_begun_ || is_there()) return error;
  const absl::Status removed = DirectoryWasRemoved(out_);
  if (absl::IsNotFound(error) || absl::IsFailedPrecondition(error)) return removed;
  return {removed.code(), absl::StrCat(removed.message(), "; what failed: ", error.message())};
}

void RunDirectory::Tidy() const {
  RemoveTemporaryFiles(out_);
  RemoveDrafts(out_ + "/checkpoints");
  RemoveTree(absl::StrCat(out_, "/", kPostMortem));
}

absl::Status RunDirectory::SetAside() {
  int n = 1;
  while (PathExists(absl::StrCat(out_, ".", n))) ++n;
  const std::string aside = absl::StrCat(out_, ".", n);
  const absl::Status moved = PutInPlace(out_, aside);
  if (!moved.ok()) {
    return Annotate(moved, absl::StrCat(out_,
                                        " holds an earlier run that cannot be set aside; use "
                                        "another --out"));
  }
  std::fprintf(stderr, "%s held an earlier run, which is now %s\n", out_.c_str(), aside.c_str());
  return absl::OkStatus();
}

absl::Status RunDirectory::MarkAndLock() {
  if (!lock_.is_open()) {
    LS_ASSIGN_OR_RETURN(FileDescriptor file, OpenRegularFile(LockPath(out_), O_RDWR | O_CREAT));
    LS_RETURN_IF_ERROR(LockRun(LockPath(out_), file));
    // Between opening and locking, another program may have set the directory aside.
    struct stat opened, named;
    if (fstat(file.get(), &opened) != 0 || stat(LockPath(out_).c_str(), &named) != 0 ||
        opened.st_ino != named.st_ino || (use_ == Use::kNew && HoldsRun(out_))) {
      return BegunMeanwhile(out_);
    }
    lock_ = std::move(file);
  }
  return WriteHolder(LockPath(out_), lock_);
}

void LeaveErrorInNewDirectory(const std::string& out, const absl::Status& error) {
  if (HoldsRun(out)) return;
  const auto directory = RunDirectory::Claim(out, RunDirectory::Use::kNew);
  if (!directory.ok() || !(*directory)->Begin().ok()) return;
  LeaveError(out, error);
}

}  // namespace lockstep
