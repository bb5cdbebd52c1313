#include "core/checkpoint/in_memory.h"

#include <stdlib.h>  // realpath
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>  // getuid

#include <algorithm>
#include <cerrno>
#include <cstdlib>  // std::getenv
#include <memory>
#include <string_view>

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

std::string Prefix() { return absl::StrCat(MemoryRoot(), "/lockstep-state-"); }

}  // namespace

uint64_t IdentityOfMemory() {
  // Each start of a machine has an id of its own, and each of its file systems a number.
  const std::string boot = ReadFile("/proc/sys/kernel/random/boot_id").value_or("");
  struct stat root = {};  // stays so where there is no such folder
  stat(MemoryRoot().c_str(), &root);
  return ChecksumOf(absl::StrCat(boot, " ", root.st_dev, " ", root.st_ino));
}

std::string InMemoryFolder(const std::string& run_directory) {
  // Whoever asks, from wherever, by whatever path, means the same folder.
  const std::unique_ptr<char, decltype(&free)> path(realpath(run_directory.c_str(), nullptr),
                                                    &free);
  if (path == nullptr) return "";
  return absl::StrFormat("%s%d-%016x", Prefix(), getuid(),
                         ChecksumOf(std::string_view(path.get())));
}

bool IsInMemory(const std::string& checkpoint) { return checkpoint.starts_with(Prefix()); }

absl::Status MakeInMemoryFolder(const std::string& run_directory, int64_t bytes) {
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
  struct statvfs room;
  if (statvfs(folder.c_str(), &room) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot look at \"", folder, "\""));
  }
  const auto free_bytes = static_cast<int64_t>(room.f_bavail * room.f_frsize);
  if (free_bytes >= bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("checkpoint.in_memory_every: ", folder, ": there is room for ",
                   FormatBytes(free_bytes), ", but the state takes ", FormatBytes(bytes),
                   " while it is replaced; make it larger, or set checkpoint.in_memory_every = 0"));
}

void RemoveInMemoryFolder(const std::string& run_directory) {
  const std::string folder = InMemoryFolder(run_directory);
  if (!folder.empty()) RemoveTree(folder);
}

absl::StatusOr<std::vector<FoundCheckpoint>> ListRunCheckpoints(const std::string& run_directory) {
  LS_ASSIGN_OR_RETURN(std::vector<FoundCheckpoint> all,
                      ListCheckpoints(run_directory + "/checkpoints"));
  const std::string folder = InMemoryFolder(run_directory);
  if (folder.empty()) return all;
  LS_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> in_memory, ListCheckpoints(folder));
  all.insert(all.end(), in_memory.begin(), in_memory.end());
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.step < b.step; });
  return all;
}

}  // namespace lockstep
