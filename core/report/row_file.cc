#include "core/report/row_file.h"

#include <fcntl.h>   // open
#include <unistd.h>  // close, ftruncate, write

#include <cerrno>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

absl::Status Error(const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write \"", path, "\""));
}

// How many leading bytes of `contents` stay when a run goes on at `next_step`.
absl::StatusOr<size_t> KeptBytes(const std::string& path, const std::string& contents,
                                 const std::string& header, int64_t next_step,
                                 const RowFile::StepOfRow& step_of_row) {
  size_t begin = 0;
  for (int64_t line = 1;; ++line) {
    const size_t end = contents.find('\n', begin);
    if (end == std::string::npos) return begin;
    const std::string row = contents.substr(begin, end - begin);
    const std::string where = absl::StrCat(path, ":", line);
    if (line == 1 && !header.empty()) {
      if (row != header) {
        return absl::InvalidArgumentError(absl::StrCat(
            where, ": expected the line \"", header,
            "\"; this is no file of such a run, so nothing is appended: move it away to resume"));
      }
    } else {
      const absl::StatusOr<int64_t> step = step_of_row(row);
      if (!step.ok()) return Annotate(step.status(), where);
      if (*step >= next_step) return begin;
    }
    begin = end + 1;
  }
}

}  // namespace

absl::StatusOr<RowFile> RowFile::Create(const std::string& path, const std::string& header) {
  const int descriptor =
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0) return Error(path);
  RowFile file(path, descriptor);
  if (!header.empty()) LS_RETURN_IF_ERROR(file.Append(header));
  return file;
}

absl::StatusOr<RowFile> RowFile::Resume(const std::string& path, const std::string& header,
                                        int64_t next_step, const StepOfRow& step_of_row) {
  const absl::StatusOr<std::string> contents = ReadFile(path);
  if (absl::IsNotFound(contents.status())) return Create(path, header);
  if (!contents.ok()) return contents.status();
  LS_ASSIGN_OR_RETURN(const size_t kept,
                      KeptBytes(path, *contents, header, next_step, step_of_row));
  if (kept == 0) return Create(path, header);
  const int descriptor = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (descriptor < 0) return Error(path);
  RowFile file(path, descriptor);
  if (ftruncate(descriptor, static_cast<off_t>(kept)) != 0) return Error(path);
  return file;
}

RowFile::RowFile(std::string path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {}

RowFile::RowFile(RowFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

RowFile& RowFile::operator=(RowFile&& other) noexcept {
  // The other one closes what was ours.
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

RowFile::~RowFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status RowFile::Append(std::string row) {
  row += '\n';
  size_t done = 0;
  while (done < row.size()) {  // once, but for signals and full disks
    const ssize_t written = write(descriptor_, row.data() + done, row.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Error(path_);
    done += static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

}  // namespace lockstep
