#include "core/base/file.h"

#include <fcntl.h>     // open
#include <stdio.h>     // rename
#include <sys/stat.h>  // fstat, mkdir, stat
#include <unistd.h>    // close, fsync, getpid, read, unlink, write

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>  // std::exchange, std::move

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

// Appends below this many bytes are gathered: one system call for 256 KiB costs next to nothing.
constexpr size_t kBufferBytes = size_t{256} << 10;

// Closes a descriptor that is only read, where close cannot fail in a way that matters.
class ScopedDescriptor {
 public:
  explicit ScopedDescriptor(int descriptor) : descriptor_(descriptor) {}
  ScopedDescriptor(const ScopedDescriptor&) = delete;
  ScopedDescriptor& operator=(const ScopedDescriptor&) = delete;
  ~ScopedDescriptor() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

std::string Quoted(std::string_view path) { return absl::StrCat("\"", std::string(path), "\""); }

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

bool IsDirectory(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

int OpenRetrying(const std::string& path, int flags, mode_t mode) {
  int descriptor;
  do {
    descriptor = open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

// Why a file cannot be made in the directory of `path`.
absl::Status CannotWriteInto(int error_number, const std::string& path) {
  return absl::ErrnoToStatus(error_number,
                             absl::StrCat("cannot write into directory ", Quoted(DirectoryOf(path)),
                                          " (for the file ", Quoted(path), ")"));
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const ScopedDescriptor file(OpenRetrying(path, O_RDONLY, 0));
  struct stat info;
  if (file.get() < 0 || fstat(file.get(), &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", Quoted(path)));
  }
  if (S_ISDIR(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot read ", Quoted(path), ": it is a directory"));
  }
  // The size is a hint: files under /proc say 0, and others may grow meanwhile.
  std::string contents(static_cast<size_t>(info.st_size) + 1, '\0');
  size_t filled = 0;
  while (true) {
    const ssize_t got = read(file.get(), contents.data() + filled, contents.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", Quoted(path)));
    if (got == 0) break;
    filled += static_cast<size_t>(got);
    if (filled == contents.size()) contents.resize(2 * contents.size());
  }
  contents.resize(filled);
  return contents;
}

absl::Status MakeDirectories(const std::string& path) {
  // From the front, so that the error names the first directory that cannot be made.
  size_t end = 0;
  while (end < path.size()) {
    end = path.find('/', end + 1);
    if (end == std::string::npos) end = path.size();
    const std::string directory = path.substr(0, end);
    if (IsDirectory(directory)) continue;
    if (mkdir(directory.c_str(), 0777) == 0) continue;
    const int error_number = errno;
    if (error_number == EEXIST) {
      if (IsDirectory(directory)) continue;  // somebody else made it in between
      return absl::FailedPreconditionError(absl::StrCat("cannot make directory ", Quoted(directory),
                                                        ": a file of that name is in the way"));
    }
    return absl::ErrnoToStatus(error_number,
                               absl::StrCat("cannot make directory ", Quoted(directory)));
  }
  return absl::OkStatus();
}

absl::Status WriteFileAtomically(const std::string& path, std::string_view contents) {
  LS_ASSIGN_OR_RETURN(AtomicFileWriter writer, AtomicFileWriter::Open(path));
  LS_RETURN_IF_ERROR(writer.Append(contents));
  return writer.Commit();
}

absl::Status PutInPlace(const std::string& temporary, const std::string& path) {
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot put in place ", Quoted(path)));
  }
  // The rename itself is on the disk when the directory is. Some file systems refuse to sync a
  // directory (EINVAL): there the rename is as safe as they make it.
  const ScopedDescriptor directory(OpenRetrying(DirectoryOf(path), O_RDONLY | O_DIRECTORY, 0));
  if (directory.get() >= 0 && fsync(directory.get()) != 0 && errno != EINVAL) {
    return absl::ErrnoToStatus(errno,
                               absl::StrCat("cannot write the directory entry of ", Quoted(path)));
  }
  return absl::OkStatus();
}

absl::StatusOr<AtomicFileWriter> AtomicFileWriter::Open(const std::string& path) {
  if (IsDirectory(path)) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot write ", Quoted(path), ": it is a directory"));
  }
  // Process and time make the name unique; O_EXCL catches the rest, another thread in the same
  // nanosecond.
  while (true) {
    std::string temporary = absl::StrCat(path, ".tmp-", getpid(), "-", NowNanos());
    const int descriptor = OpenRetrying(temporary, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (descriptor >= 0) return AtomicFileWriter(path, std::move(temporary), descriptor);
    if (errno != EEXIST) return CannotWriteInto(errno, path);
  }
}

AtomicFileWriter::AtomicFileWriter(std::string path, std::string temporary, int descriptor)
    : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}

AtomicFileWriter::AtomicFileWriter(AtomicFileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      buffer_(std::move(other.buffer_)) {}

AtomicFileWriter& AtomicFileWriter::operator=(AtomicFileWriter&& other) noexcept {
  if (this != &other) {
    Discard();
    path_ = std::move(other.path_);
    temporary_ = std::move(other.temporary_);
    descriptor_ = std::exchange(other.descriptor_, -1);
    buffer_ = std::move(other.buffer_);
  }
  return *this;
}

AtomicFileWriter::~AtomicFileWriter() { Discard(); }

void AtomicFileWriter::Discard() {
  if (descriptor_ < 0) return;
  close(std::exchange(descriptor_, -1));
  unlink(temporary_.c_str());
}

absl::Status AtomicFileWriter::Error(int error_number, std::string_view doing) const {
  return absl::ErrnoToStatus(error_number,
                             absl::StrCat("cannot ", std::string(doing), " ", Quoted(path_)));
}

absl::Status AtomicFileWriter::WriteOut(std::string_view data) {
  while (!data.empty()) {
    const ssize_t written = write(descriptor_, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Error(errno, "write");
    data.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status AtomicFileWriter::Append(std::string_view data) {
  if (buffer_.size() + data.size() < kBufferBytes) {
    buffer_.append(data);
    return absl::OkStatus();
  }
  LS_RETURN_IF_ERROR(WriteOut(buffer_));
  buffer_.clear();
  if (data.size() >= kBufferBytes) return WriteOut(data);
  buffer_.append(data);
  return absl::OkStatus();
}

absl::Status AtomicFileWriter::Commit() {
  LS_RETURN_IF_ERROR(WriteOut(buffer_));
  buffer_.clear();
  // Before the rename: else a crash could leave the name on a file without its bytes.
  if (fsync(descriptor_) != 0) return Error(errno, "write");
  LS_RETURN_IF_ERROR(PutInPlace(temporary_, path_));
  close(std::exchange(descriptor_, -1));  // fsync has reported what could go wrong
  return absl::OkStatus();
}

}  // namespace lockstep
