// A text file of rows that grows while training runs, one row a step: losses.csv, metrics.jsonl.
//
// It is the one kind of file that is not written beside its name: a killed run must keep the rows
// that it had. Each row goes to the system whole, in one write.

#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep {

class RowFile {
 public:
  // The step that a row belongs to, or an error that says what is wrong with the row.
  using StepOfRow = std::function<absl::StatusOr<int64_t>(const std::string& row)>;

  // Makes the file, or replaces what is there. It begins with the row `header` unless that is
  // empty.
  static absl::StatusOr<RowFile> Create(const std::string& path, const std::string& header);

  // Goes on where a run stopped: cuts the file before the first row of step `next_step` or later,
  // and a last row without line end, which a killed process may leave. A missing or empty file is
  // made. An error, with the line, if the header is another one or a row that stays cannot be read;
  // then the file is as it was.
  static absl::StatusOr<RowFile> Resume(const std::string& path, const std::string& header,
                                        int64_t next_step, const StepOfRow& step_of_row);

  RowFile(RowFile&& other) noexcept;
  RowFile& operator=(RowFile&& other) noexcept;
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;
  ~RowFile();

  // Adds a row, given without its line end. When it returns the row survives the process (not the
  // machine: nothing waits for the disk).
  absl::Status Append(std::string row);

 private:
  RowFile(std::string path, int descriptor);

  std::string path_;
  int descriptor_;  // -1: moved from
};

}  // namespace lockstep
