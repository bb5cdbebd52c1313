#include "tools/launch/host_folder.h"

#include <fcntl.h>     // O_CREAT
#include <sys/file.h>  // flock
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

constexpr char kWorkersLock[] = "workers.lock";
constexpr int kMostTries = 100;

bool IsOurs(const std::string& folder) {
  struct stat found;
  return lstat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == getuid();
}

bool HasLauncher(const std::string& folder) {
  const auto lock = OpenRegularFile(absl::StrCat(folder, "/", kLauncherLock), O_RDONLY);
  return lock.ok() && flock(lock->get(), LOCK_SH | LOCK_NB) != 0;
}

// The folder of the daemon that has started this process; empty: it has told none in `folder`.
std::string DaemonFolder(const std::string& folder) {
  for (const char* name : {"PMIX_SERVER_TMPDIR", "OMPI_MCA_orte_jobfam_session_dir"}) {
    const char* path = std::getenv(name);
    if (path != nullptr && absl::StartsWith(path, folder + "/")) return path;
  }
  return "";
}

void ClearAllBut(const std::string& kept, const std::string& folder) {
  for (const std::string& name : ListFolder(folder).value_or(std::vector<std::string>())) {
    const std::string path = absl::StrCat(folder, "/", name);
    if (path == kept || name == kLauncherLock || name == kWorkersLock) continue;
    if (absl::StartsWith(kept, path + "/")) {
      ClearAllBut(kept, path);
    } else if (!kept.empty() || std::getenv("OMPI_COMM_WORLD_RANK") == nullptr ||
               !IsDirectory(path)) {
      // Under an mpirun whose daemon tells no folder, each may be the daemon's.
      RemoveTree(path);
    }
  }
}

// Whether a file that was opened by its name still has it.
bool HasName(const FileDescriptor& file, const std::string& name) {
  struct stat opened, named;
  return fstat(file.get(), &opened) == 0 && stat(name.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

}  // namespace

absl::StatusOr<HostFolder> HostFolder::Enter(const std::string& path) {
  const std::string name = absl::StrCat(path, "/", kWorkersLock);
  // Each try fails only where the last worker of an earlier start has removed the folder meanwhile.
  for (int i = 0; i < kMostTries; ++i) {
    LS_RETURN_IF_ERROR(MakeDirectories(path));
    if (!IsOurs(path) || HasLauncher(path)) break;
    absl::StatusOr<FileDescriptor> lock = OpenRegularFile(name, O_RDWR | O_CREAT);
    if (!lock.ok()) continue;
    if (flock(lock->get(), LOCK_EX | LOCK_NB) == 0 && HasName(*lock, name)) {
      ClearAllBut(DaemonFolder(path), path);
    }
    // Another worker may clear the folder before this one shares the lock, but not after.
    if (flock(lock->get(), LOCK_SH) == 0 && HasName(*lock, name)) {
      return HostFolder(path, *std::move(lock));
    }
  }
  return HostFolder(path, FileDescriptor());
}

void HostFolder::Leave() {
  if (!lock_.is_open()) return;
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) {
    ClearAllBut(DaemonFolder(path_), path_);
    unlink(absl::StrCat(path_, "/", kWorkersLock).c_str());
    rmdir(path_.c_str());  // stays where the daemon has its own there
  }
  lock_ = FileDescriptor();
}

}  // namespace lockstep
