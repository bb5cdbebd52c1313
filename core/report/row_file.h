// A text file of rows that grows while training runs: losses.csv, metrics.jsonl, hashes.csv.
//
// It is the one kind of file that is not written beside its name: a killed run must keep the rows
// that it had. Each row goes to the system whole, in one write.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/file.h"

namespace lockstep {

// What the rows of a file look like.
struct RowFormat {
  absl::string_view header;  // the first row; empty: there is none
  // The step that a row belongs to, or an error that says what is wrong with the row.
  absl::StatusOr<int64_t> (*step_of_row)(const std::string& row);
};

// A file of rows in a run directory.
struct NamedRows {
  std::string name;
  const RowFormat* format;
};

// Which rows a file must have before the step that a run goes on with.
enum class EarlierRows {
  kOptional,   // any, or none
  kEveryStep,  // one of each step: 0, 1, 2, ...
};

class RowFile {
 public:
  // Whether rows of step `first_step` and later can follow what the file at `path` holds; changes
  // nothing. FailedPrecondition where earlier rows are missing. InvalidArgument, with the line, if
  // the header is another one or a row that stays cannot be read.
  static absl::Status Check(const std::string& path, const RowFormat& format, int64_t first_step,
                            EarlierRows earlier);

  // Opens the file for rows of step `first_step` and later. Step 0 begins the file anew. A later
  // step goes on where a run stopped: cuts the file before the first row of that step or later, and
  // a last row without line end, which a killed process may leave. A missing or empty file is made.
  // The errors of Check; then the file is as it was.
  static absl::StatusOr<RowFile> Open(const std::string& path, const RowFormat& format,
                                      int64_t first_step);

  // Returns the whole rows that Open would cut, below the header: a file of its own, for whoever
  // keeps them. Empty where Open cuts no whole row. Changes nothing; the errors of Open.
  static absl::StatusOr<std::string> RowsToCut(const std::string& path, const RowFormat& format,
                                               int64_t first_step);

  // Adds a row, given without its line end. When it returns the row survives the process, and after
  // Sync the machine. Sync returns FailedPrecondition where the file is no longer there under its
  // name.
  absl::Status Append(std::string row);
  absl::Status Sync();

 private:
  RowFile(std::string path, FileDescriptor file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  FileDescriptor file_;
};

// Hands each row of a file with a header to `read`, whose errors get the file and the line. Another
// header, and a last row without line end, are errors.
absl::Status ReadRows(const std::string& path, const RowFormat& format,
                      const std::function<absl::Status(const std::string& row)>& read);

}  // namespace lockstep
