#include "core/base/file.h"

#include <dirent.h>    // opendir, readdir
#include <fcntl.h>     // open
#include <stdio.h>     // rename
#include <sys/stat.h>  // fstat, mkdir, stat
#include <unistd.h>    // close, fsync, getcwd, getpid, read, unlink, write

#include <algorithm>  // std::max, std::sort
#include <cerrno>
#include <climits>  // PATH_MAX
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>  // std::exchange, std::move
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

// Appends below this many bytes are gathered: one system call for 256 KiB costs next to nothing.
constexpr size_t kBufferBytes = size_t{256} << 10;

namespace fs = std::filesystem;

// Stands between the name of a file and the process and time that make a temporary name.
constexpr char kTemporaryMark[] = ".tmp-";

// "a directory"
const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

std::string Quoted(std::string_view path) { return absl::StrCat("\"", std::string(path), "\""); }

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

int OpenRetrying(const std::string& path, int flags, mode_t mode) {
  int descriptor;
  do {
    descriptor = open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

bool IsWorkingDirectoryRemoved() {
  char here[PATH_MAX];
  return getcwd(here, sizeof(here)) == nullptr && errno == ENOENT;
}

// The error of a call that was given `path`. Where the working directory was removed, a relative
// path names nothing, whatever it is, so the message says that.
absl::Status PathError(int error_number, const std::string& doing, const std::string& path) {
  absl::Status error = absl::ErrnoToStatus(error_number, doing);
  const bool is_relative = path.empty() || path[0] != '/';
  if (error_number != ENOENT || !is_relative || !IsWorkingDirectoryRemoved()) return error;
  return {error.code(),
          absl::StrCat(error.message(),
                       "; the working directory was removed: change to one that exists, or give "
                       "absolute paths")};
}

// Why a file cannot be made in the directory of `path`.
absl::Status CannotWriteInto(int error_number, const std::string& path) {
  return PathError(error_number,
                   absl::StrCat("cannot write into directory ", Quoted(DirectoryOf(path)),
                                " (for the file ", Quoted(path), ")"),
                   path);
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::StatusOr<FileDescriptor> OpenRegularFile(const std::string& path, int flags) {
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  const std::string doing = absl::StrCat("cannot ", writes ? "write " : "read ", Quoted(path));
  // O_NONBLOCK: a FIFO without a writer is opened at once, and refused below.
  FileDescriptor file(OpenRetrying(path, flags | O_NONBLOCK | O_NOCTTY, 0666));
  struct stat info;
  if (!file.is_open() || fstat(file.get(), &info) != 0) return PathError(errno, doing, path);
  if (S_ISREG(info.st_mode)) return file;
  return absl::FailedPreconditionError(absl::StrCat(doing, ": it is ", KindOf(info.st_mode)));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  LS_ASSIGN_OR_RETURN(const FileDescriptor file, OpenRegularFile(path, O_RDONLY));
  struct stat info;
  if (fstat(file.get(), &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", Quoted(path)));
  }
  size_t filled = 0;
  try {
    // The size is a hint: files under /proc say 0, and others may grow meanwhile.
    std::string contents(static_cast<size_t>(info.st_size) + 1, '\0');
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
  } catch (const std::exception&) {  // std::bad_alloc, std::length_error
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot read ", Quoted(path), ": there is no memory for its ",
                     std::max<int64_t>(info.st_size, static_cast<int64_t>(filled)), " bytes"));
  }
}

bool PathExists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

bool IsGone(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

bool IsDirectory(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

absl::StatusOr<int64_t> FileBytes(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0) return static_cast<int64_t>(info.st_size);
  return PathError(errno, absl::StrCat("cannot read ", Quoted(path)), path);
}

absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path) {
  const auto error = [&path](int number) {
    return PathError(number, absl::StrCat("cannot list folder ", Quoted(path)), path);
  };
  // Not std::filesystem's iterator: where memory runs out inside of it, it ends the program.
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()), closedir);
  if (folder == nullptr) return error(errno);
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* entry = readdir(folder.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return error(errno);
  std::sort(names.begin(), names.end());
  return names;
}

void RemoveTree(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

void RemoveTemporaryFiles(const std::string& folder) {
  const absl::StatusOr<std::vector<std::string>> names = ListFolder(folder);
  if (!names.ok()) return;  // whoever writes into the folder will say so
  for (const std::string& name : *names) {
    const size_t mark = name.find(kTemporaryMark);
    if (mark == std::string::npos) continue;
    const size_t digits = mark + sizeof(kTemporaryMark) - 1;
    if (name.find_first_not_of("0123456789-", digits) != std::string::npos) continue;
    unlink(absl::StrCat(folder, "/", name).c_str());
  }
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
    return PathError(error_number, absl::StrCat("cannot make directory ", Quoted(directory)),
                     directory);
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
  const FileDescriptor directory(OpenRetrying(DirectoryOf(path), O_RDONLY | O_DIRECTORY, 0));
  if (directory.get() >= 0 && fsync(directory.get()) != 0 && errno != EINVAL) {
    return absl::ErrnoToStatus(errno,
                               absl::StrCat("cannot write the directory entry of ", Quoted(path)));
  }
  return absl::OkStatus();
}

absl::StatusOr<AtomicFileWriter> AtomicFileWriter::Open(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot write ", Quoted(path), ": it is ", KindOf(info.st_mode), "; name a file instead"));
  }
  // Process and time make the name unique; O_EXCL catches the rest, another thread in the same
  // nanosecond.
  while (true) {
    std::string temporary = absl::StrCat(path, kTemporaryMark, getpid(), "-", NowNanos());
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

absl::Status AtomicFileWriter::Flush() {
  LS_RETURN_IF_ERROR(WriteOut(buffer_));
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status AtomicFileWriter::Append(std::string_view data) {
  if (buffer_.size() + data.size() < kBufferBytes) {
    buffer_.append(data);
    return absl::OkStatus();
  }
  LS_RETURN_IF_ERROR(Flush());
  if (data.size() >= kBufferBytes) return WriteOut(data);
  buffer_.append(data);
  return absl::OkStatus();
}

absl::Status AtomicFileWriter::Overwrite(int64_t offset, std::string_view data) {
  LS_RETURN_IF_ERROR(Flush());
  while (!data.empty()) {
    const ssize_t written =
        pwrite(descriptor_, data.data(), data.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Error(errno, "write");
    data.remove_prefix(static_cast<size_t>(written));
    offset += written;
  }
  return absl::OkStatus();
}

absl::Status AtomicFileWriter::Commit() {
  LS_RETURN_IF_ERROR(Flush());
  // Before the rename: else a crash could leave the name on a file without its bytes.
  if (fsync(descriptor_) != 0) return Error(errno, "write");
  LS_RETURN_IF_ERROR(PutInPlace(temporary_, path_));
  close(std::exchange(descriptor_, -1));  // fsync has reported what could go wrong
  return absl::OkStatus();
}

}  // namespace lockstep
