#include "core/report/row_file.h"

#include <fcntl.h>     // O_APPEND
#include <sys/stat.h>  // fstat, stat
#include <unistd.h>    // fsync, ftruncate, write

#include <cerrno>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/file.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

absl::Status Error(const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write \"", path, "\""));
}

// The lines of a text, with what stands behind the last line end. An error if the first one is not
// the header.
absl::StatusOr<std::vector<std::string>> Lines(const std::string& path, const std::string& contents,
                                               absl::string_view header) {
  std::vector<std::string> lines = absl::StrSplit(contents, '\n');
  if (header.empty() || lines[0] == header) return lines;
  return InvalidArgument(path, ":1: expected the line \"", header, "\", found \"", lines[0], "\"");
}

// What stays of a file when rows of `first_step` and later are written anew.
struct KeptRows {
  size_t bytes = 0;
  int64_t steps = 0;        // rows, while each is of the step that its place says
  bool is_complete = true;  // whether that held for all of them
};

absl::StatusOr<KeptRows> Kept(const std::string& path, const RowFormat& format,
                              int64_t first_step) {
  const absl::StatusOr<std::string> contents = ReadFile(path);
  if (absl::IsNotFound(contents.status())) return KeptRows{};
  if (!contents.ok()) return contents.status();
  if (contents->find('\n') == std::string::npos) return KeptRows{};
  LS_ASSIGN_OR_RETURN(const std::vector<std::string> lines, Lines(path, *contents, format.header));
  KeptRows kept;
  for (size_t i = 0; i + 1 < lines.size(); ++i) {
    if (i > 0 || format.header.empty()) {
      const absl::StatusOr<int64_t> step = format.step_of_row(lines[i]);
      if (!step.ok()) return Annotate(step.status(), absl::StrCat(path, ":", i + 1));
      if (*step >= first_step) break;
      kept.is_complete = kept.is_complete && *step == kept.steps;
      if (kept.is_complete) ++kept.steps;
    }
    kept.bytes += lines[i].size() + 1;
  }
  return kept;
}

}  // namespace

absl::Status RowFile::Check(const std::string& path, const RowFormat& format, int64_t first_step,
                            EarlierRows earlier) {
  const absl::StatusOr<KeptRows> kept = Kept(path, format, first_step);
  if (!kept.ok()) return Annotate(kept.status(), "nothing is appended; move the file to resume");
  if (earlier == EarlierRows::kOptional) return absl::OkStatus();
  if (kept->is_complete && kept->steps == first_step) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      path, ": lacks the row of step ", kept->steps, ", but the checkpoint to resume from has ",
      first_step, " steps behind it; put the whole file back, or start anew with another --out"));
}

absl::StatusOr<RowFile> RowFile::Open(const std::string& path, const RowFormat& format,
                                      int64_t first_step) {
  size_t bytes = 0;
  if (first_step > 0) {
    const absl::StatusOr<KeptRows> kept = Kept(path, format, first_step);
    if (!kept.ok()) return Annotate(kept.status(), "nothing is appended; move the file to resume");
    bytes = kept->bytes;
  }
  LS_ASSIGN_OR_RETURN(FileDescriptor opened, OpenRegularFile(path, O_WRONLY | O_CREAT | O_APPEND));
  RowFile file(path, std::move(opened));
  if (ftruncate(file.file_.get(), static_cast<off_t>(bytes)) != 0) return Error(path);
  if (bytes == 0 && !format.header.empty()) {
    LS_RETURN_IF_ERROR(file.Append(std::string(format.header)));
  }
  return file;
}

absl::StatusOr<std::string> RowFile::RowsToCut(const std::string& path, const RowFormat& format,
                                               int64_t first_step) {
  const absl::StatusOr<KeptRows> kept = Kept(path, format, first_step);
  if (!kept.ok()) return Annotate(kept.status(), "nothing is appended; move the file to resume");
  const absl::StatusOr<std::string> contents = ReadFile(path);
  if (absl::IsNotFound(contents.status())) return std::string();
  LS_RETURN_IF_ERROR(contents.status());
  const size_t end = contents->rfind('\n') + 1;  // npos + 1: there is no whole row
  if (end <= kept->bytes) return std::string();
  const std::string header = format.header.empty() ? "" : absl::StrCat(format.header, "\n");
  return absl::StrCat(header, contents->substr(kept->bytes, end - kept->bytes));
}

absl::Status RowFile::Append(std::string row) {
  row += '\n';
  for (absl::string_view rest = row; !rest.empty();) {
    const ssize_t written = write(file_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Error(path_);
    rest.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status RowFile::Sync() {
  struct stat opened, named;
  const bool is_gone = IsGone(path_);
  if (!is_gone && (stat(path_.c_str(), &named) != 0 || fstat(file_.get(), &opened) != 0)) {
    return Error(path_);
  }
  if (is_gone || named.st_ino != opened.st_ino || named.st_dev != opened.st_dev) {
    return absl::FailedPreconditionError(
        absl::StrCat("\"", path_,
                     "\" was removed or replaced while the run wrote it, and the rows with it; "
                     "leave a run's directory alone until it ends, and start the run anew"));
  }
  // Some file systems cannot (EINVAL): there rows are as safe as they make them.
  if (fsync(file_.get()) != 0 && errno != EINVAL) return Error(path_);
  return absl::OkStatus();
}

absl::Status ReadRows(const std::string& path, const RowFormat& format,
                      const std::function<absl::Status(const std::string& row)>& read) {
  LS_ASSIGN_OR_RETURN(const std::string contents, ReadFile(path));
  LS_ASSIGN_OR_RETURN(const std::vector<std::string> lines, Lines(path, contents, format.header));
  if (!lines.back().empty()) {
    return InvalidArgument(
        path, ":", lines.size(),
        ": the last row has no line end: the file was cut, perhaps within a number");
  }
  for (size_t i = 1; i + 1 < lines.size(); ++i) {
    LS_RETURN_IF_ERROR(Annotate(read(lines[i]), absl::StrCat(path, ":", i + 1)));
  }
  return absl::OkStatus();
}

}  // namespace lockstep
