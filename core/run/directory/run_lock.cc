#include "core/run/directory/run_lock.h"

#include <fcntl.h>     // O_RDWR
#include <sys/file.h>  // flock
#include <unistd.h>    // ftruncate, getpid, gethostname, pread, pwrite

#include <algorithm>
#include <array>
#include <cerrno>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace lockstep {
namespace {

// "host b, ", with which this host's programs begin what they write.
std::string ThisHost() {
  std::array<char, 256> host = {};
  gethostname(host.data(), host.size() - 1);
  return absl::StrCat("host ", host.data(), ", ");
}

// What the file says of the program that has its lock; empty: nothing yet.
std::string ReadHolder(const FileDescriptor& file) {
  std::array<char, 512> text = {};
  const ssize_t size = pread(file.get(), text.data(), text.size() - 1, 0);
  return absl::StrReplaceAll(
      absl::StripAsciiWhitespace(absl::string_view(text.data(), std::max<ssize_t>(size, 0))),
      {{"\n", ", "}});
}

}  // namespace

absl::Status LockRun(const std::string& path, const FileDescriptor& file) {
  if (flock(file.get(), LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  if (errno != EWOULDBLOCK) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot lock \"", path, "\""));
  }
  const std::string holder = ReadHolder(file);
  return absl::FailedPreconditionError(absl::StrCat(
      path.substr(0, path.rfind('/')), ": another program is using this run directory (",
      holder.empty() ? "it has just begun" : holder,
      "); wait for it to end, or use another --out"));
}

absl::Status WriteHolder(const std::string& path, const FileDescriptor& file) {
  const std::string text = absl::StrCat(ThisHost(), "process ", getpid(), "\n");
  if (ftruncate(file.get(), 0) != 0 ||
      pwrite(file.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write \"", path, "\""));
  }
  return absl::OkStatus();
}

std::string HolderElsewhere(const std::string& path) {
  const absl::StatusOr<FileDescriptor> file = OpenRegularFile(path, O_RDWR);
  if (!file.ok() || flock(file->get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return "";
  std::string holder = ReadHolder(*file);
  return absl::StartsWith(holder, ThisHost()) ? "" : holder;
}

}  // namespace lockstep
