#include "core/report/row_file.h"

#include <unistd.h>  // ftruncate

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

// How many leading bytes of a file stay when rows of `first_step` and later are written anew.
absl::StatusOr<size_t> KeptBytes(const std::string& path, const RowFormat& format,
                                 int64_t first_step) {
  const absl::StatusOr<std::string> contents = ReadFile(path);
  if (absl::IsNotFound(contents.status())) return 0;
  if (!contents.ok()) return contents.status();
  if (contents->find('\n') == std::string::npos) return 0;
  LS_ASSIGN_OR_RETURN(const std::vector<std::string> lines, Lines(path, *contents, format.header));
  size_t kept = 0;
  for (size_t i = 0; i + 1 < lines.size(); ++i) {
    if (i > 0 || format.header.empty()) {
      const absl::StatusOr<int64_t> step = format.step_of_row(lines[i]);
      if (!step.ok()) return Annotate(step.status(), absl::StrCat(path, ":", i + 1));
      if (*step >= first_step) break;
    }
    kept += lines[i].size() + 1;
  }
  return kept;
}

}  // namespace

absl::StatusOr<RowFile> RowFile::Open(const std::string& path, const RowFormat& format,
                                      int64_t first_step) {
  const absl::StatusOr<size_t> kept = first_step > 0 ? KeptBytes(path, format, first_step) : 0;
  if (!kept.ok()) return Annotate(kept.status(), "nothing is appended; move the file to resume");
  RowFile file(path, std::fopen(path.c_str(), "ae"));
  if (file.file_ == nullptr) return Error(path);
  std::setvbuf(file.file_.get(), nullptr, _IONBF, 0);  // a row is one write
  if (ftruncate(fileno(file.file_.get()), static_cast<off_t>(*kept)) != 0) return Error(path);
  if (*kept == 0 && !format.header.empty()) {
    LS_RETURN_IF_ERROR(file.Append(std::string(format.header)));
  }
  return file;
}

absl::Status RowFile::Append(std::string row) {
  row += '\n';
  if (std::fwrite(row.data(), 1, row.size(), file_.get()) != row.size()) return Error(path_);
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
