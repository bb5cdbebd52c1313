#include "core/checkpoint/in_memory.h"

#include <stdio.h>   // rename
#include <stdlib.h>  // realpath
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>  // getuid, rmdir

#include <algorithm>
#include <cerrno>
#include <cstdlib>  // std::getenv
#include <memory>
#include <random>
#include <tuple>  // std::ignore
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/checksum.h"
#include "core/base/clock.h"  // FormatBytes
#include "core/base/file.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

// The folder of a file system in memory.
std::string MemoryRoot() {
  const char* const named = std::getenv("LOCKSTEP_MEMORY");
  return named != nullptr && *named != '\0' ? named : "/dev/shm";
}

constexpr char kNameBegins[] = "lockstep-state-";

std::string Prefix() { return absl::StrCat(MemoryRoot(), "/", kNameBegins); }

// What names of this user's folders begin with.
std::string OwnNamesBegin() { return absl::StrCat(kNameBegins, getuid(), "-"); }

// The file of a folder that has the path of the run directory.
constexpr char kRunDirectoryFile[] = "run_directory";

// The path without links of a directory that exists; empty where it does not.
std::string RealPath(const std::string& directory) {
  const std::unique_ptr<char, decltype(&free)> path(realpath(directory.c_str(), nullptr), &free);
  return path == nullptr ? "" : path.get();
}

std::string IdPath(const std::string& run_directory) {
  return absl::StrCat(run_directory, "/", kRunIdFile);
}

// The folder of the run that `text` names.
std::string FolderOf(const std::string& text) {
  return absl::StrFormat("%s/%s%016x", MemoryRoot(), OwnNamesBegin(), ChecksumOf(text));
}

// What the names of folders for copies that stand apart begin with; a number follows.
constexpr char kApart[] = "apart-";

// The folders for copies that stand apart, below a folder in memory.
std::vector<std::string> FoldersApart(const std::string& folder) {
  std::vector<std::string> all;
  for (const std::string& name : ListFolder(folder).value_or(std::vector<std::string>())) {
    if (name.starts_with(kApart)) all.push_back(absl::StrCat(folder, "/", name));
  }
  return all;
}

void SortBySteps(std::vector<FoundCheckpoint>& all) {
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.step < b.step; });
}

// The bytes of a file, or of all files below a folder.
int64_t BytesBelow(const std::string& path) {
  if (!IsDirectory(path)) return FileBytes(path).value_or(0);
  int64_t bytes = 0;
  for (const std::string& name : ListFolder(path).value_or(std::vector<std::string>())) {
    bytes += BytesBelow(absl::StrCat(path, "/", name));
  }
  return bytes;
}

}  // namespace

uint64_t IdentityOfMemory() {
  // Each start of a machine has an id of its own, and each of its file systems a number.
  const std::string boot = ReadFile("/proc/sys/kernel/random/boot_id").value_or("");
  struct stat root = {};  // stays so where there is no such folder
  stat(MemoryRoot().c_str(), &root);
  return ChecksumOf(absl::StrCat(boot, " ", root.st_dev, " ", root.st_ino));
}

absl::Status WriteRunId(const std::string& run_directory) {
  std::random_device random;
  return WriteFileAtomically(IdPath(run_directory),
                             absl::StrFormat("%08x%08x\n", random(), random()));
}

std::string InMemoryFolder(const std::string& run_directory) {
  // Whoever asks, from wherever, by whatever path, means the same folder.
  const std::string path = RealPath(run_directory);
  if (path.empty()) return "";
  const absl::StatusOr<std::string> id = ReadFile(IdPath(path));
  if (absl::IsNotFound(id.status())) return FolderOf(path);
  return id.ok() ? FolderOf(absl::StrCat(path, "\n", *id)) : "";
}

bool IsInMemory(const std::string& checkpoint) { return checkpoint.starts_with(Prefix()); }

absl::Status MakeInMemoryFolder(const std::string& run_directory, int64_t free_bytes) {
  const std::string folder = InMemoryFolder(run_directory);
  struct stat found;
  if (mkdir(folder.c_str(), 0700) != 0 && (errno != EEXIST || lstat(folder.c_str(), &found) != 0 ||
                                           !S_ISDIR(found.st_mode) || found.st_uid != getuid())) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot make the folder \"", folder,
                     "\" for the state in memory; mount /dev/shm, name another folder in memory by "
                     "LOCKSTEP_MEMORY, "
                     "or set checkpoint.in_memory_every = 0"));
  }
  // For ListInMemoryFolders: the folder's name does not tell the path. Where there is no room for
  // it, the message below says how much is lacking.
  const absl::Status named =
      WriteFileAtomically(absl::StrCat(folder, "/", kRunDirectoryFile), RealPath(run_directory));
  struct statvfs room;
  if (statvfs(folder.c_str(), &room) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot look at \"", folder, "\""));
  }
  const auto room_bytes = static_cast<int64_t>(room.f_bavail * room.f_frsize);
  if (room_bytes >= free_bytes) return named;
  return absl::ResourceExhaustedError(absl::StrCat(
      "checkpoint.in_memory_every: ", folder, " holds ", FormatBytes(BytesBelow(folder)),
      ", and there is room for ", FormatBytes(room_bytes), " more; copies of the state need ",
      FormatBytes(free_bytes), " more. Make it larger, or set checkpoint.in_memory_every = 0"));
}

absl::Status MakeRoomForCopies(const std::string& run_directory, int64_t copy_bytes) {
  const std::string folder = InMemoryFolder(run_directory);
  RemoveDrafts(folder);
  if (const auto held = ListCheckpoints(folder); held.ok() && !held->empty()) {
    KeepNewest(*held, held->back(), 1);
  }
  return MakeInMemoryFolder(
      run_directory, std::max(copy_bytes, kMostInMemoryCopies * copy_bytes - BytesBelow(folder)));
}

absl::Status SetCopyApart(const std::string& run_directory, const FoundCheckpoint& copy) {
  const std::string folder = InMemoryFolder(run_directory);
  const std::string name = copy.path.substr(copy.path.find_last_of('/') + 1);
  // Copies of two sets may have the same step.
  for (int number = 0;; ++number) {
    const std::string apart = absl::StrCat(folder, "/", kApart, number);
    const std::string path = absl::StrCat(apart, "/", name);
    if (PathExists(path)) continue;
    LS_RETURN_IF_ERROR(MakeDirectories(apart));
    if (rename(copy.path.c_str(), path.c_str()) == 0) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot rename \"", copy.path, "\""));
  }
}

void PutCopiesBack(const std::string& run_directory) {
  const std::string folder = InMemoryFolder(run_directory);
  for (const std::string& apart : FoldersApart(folder)) {
    for (const std::string& name : ListFolder(apart).value_or(std::vector<std::string>())) {
      const std::string path = absl::StrCat(folder, "/", name);
      // A copy that cannot be renamed stays apart, where the next start finds it.
      if (!PathExists(path))
        std::ignore = rename(absl::StrCat(apart, "/", name).c_str(), path.c_str());
    }
    rmdir(apart.c_str());  // where it is empty
  }
}

std::vector<FoundCheckpoint> ListCopiesApart(const std::string& run_directory) {
  std::vector<FoundCheckpoint> all;
  const std::string folder = InMemoryFolder(run_directory);
  if (folder.empty()) return all;
  for (const std::string& apart : FoldersApart(folder)) {
    const auto found = ListCheckpoints(apart);
    if (found.ok()) all.insert(all.end(), found->begin(), found->end());
  }
  SortBySteps(all);
  return all;
}

bool IsApart(const std::string& checkpoint) {
  const std::string folder = checkpoint.substr(0, checkpoint.find_last_of('/'));
  return IsInMemory(checkpoint) && folder.substr(folder.find_last_of('/') + 1).starts_with(kApart);
}

void RemoveCopiesApart(const std::string& run_directory) {
  for (const std::string& apart : FoldersApart(InMemoryFolder(run_directory))) RemoveTree(apart);
}

void RemoveInMemoryFolder(const std::string& run_directory) {
  const std::string folder = InMemoryFolder(run_directory);
  if (!folder.empty()) RemoveTree(folder);
}

void RemoveFoldersOfEarlierRuns(const std::string& run_directory) {
  const std::string path = RealPath(run_directory);
  const std::string own = InMemoryFolder(run_directory);
  if (own.empty() || !PathExists(IdPath(path))) return;
  RemoveTree(FolderOf(path));  // of an earlier version, which may not say whose it is
  const auto all = ListInMemoryFolders();
  if (!all.ok()) return;
  for (const FoundInMemoryFolder& found : *all) {
    if (found.run_directory == path && found.path != own) RemoveTree(found.path);
  }
}

absl::StatusOr<std::vector<FoundInMemoryFolder>> ListInMemoryFolders() {
  std::vector<FoundInMemoryFolder> all;
  LS_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(MemoryRoot()));
  for (const std::string& name : names) {
    if (!name.starts_with(OwnNamesBegin())) continue;
    FoundInMemoryFolder found = {.path = absl::StrCat(MemoryRoot(), "/", name),
                                 .run_directory = ""};
    struct stat folder;
    if (lstat(found.path.c_str(), &folder) != 0 || !S_ISDIR(folder.st_mode) ||
        folder.st_uid != getuid()) {
      continue;
    }
    found.run_directory = ReadFile(absl::StrCat(found.path, "/", kRunDirectoryFile)).value_or("");
    // A link in the place of the directory leads elsewhere, and another run may be in it.
    const std::string its_folder = InMemoryFolder(found.run_directory);
    // Where the directory cannot be looked at, it may be there.
    found.has_run_directory =
        !found.run_directory.empty() &&
        (its_folder.empty() ? !IsGone(found.run_directory) : its_folder == found.path);
    const auto checkpoints = ListCheckpoints(found.path);
    if (checkpoints.ok() && !checkpoints->empty()) found.steps = checkpoints->back().step;
    found.bytes = BytesBelow(found.path);
    all.push_back(std::move(found));
  }
  return all;
}

absl::StatusOr<std::vector<FoundCheckpoint>> ListRunCheckpoints(const std::string& run_directory) {
  LS_ASSIGN_OR_RETURN(std::vector<FoundCheckpoint> all,
                      ListCheckpoints(run_directory + "/checkpoints"));
  const std::string folder = InMemoryFolder(run_directory);
  if (folder.empty()) return all;
  LS_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> in_memory, ListCheckpoints(folder));
  all.insert(all.end(), in_memory.begin(), in_memory.end());
  const std::vector<FoundCheckpoint> apart = ListCopiesApart(run_directory);
  all.insert(all.end(), apart.begin(), apart.end());
  SortBySteps(all);
  return all;
}

bool IsNewestInMemory(const std::string& run_directory) {
  const auto all = ListRunCheckpoints(run_directory);
  if (!all.ok()) return true;
  int64_t on_disk = -1, in_memory = -1;
  for (const FoundCheckpoint& found : *all) {
    int64_t& newest = IsInMemory(found.path) ? in_memory : on_disk;
    newest = std::max(newest, found.step);
  }
  return in_memory > on_disk;
}

}  // namespace lockstep
