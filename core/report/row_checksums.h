// row_checksums.jsonl: checksums of the rows that stood in a run's other files of rows when its
// checkpoints were saved, so that --resume does not go on behind a row that has changed since, and
// tools do not judge a run by such a row.
//
// A row for each checkpoint: the last step behind it, and for each file how many bytes of it belong
// to steps up to that one, and their checksum. The files themselves stay as they are. "row" of a
// row is the checksum of the row without it, so that damage of a row is not taken for damage of a
// file; rows of earlier versions lack it.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/report/row_file.h"

namespace lockstep {

inline constexpr char kRowChecksumsFile[] = "row_checksums.jsonl";

class RowChecksums {
 public:
  // Holds the `files` in the run directory `out` to the checksums of the checkpoints with at most
  // `steps` behind them. FailedPrecondition names the file, and the steps among whose rows the
  // change is; or row_checksums.jsonl and the row of it that has changed. What no checksum was kept
  // of passes, and so does a file that is gone (RowFile::Check says which rows must be there).
  // Reads the files once.
  static absl::Status Check(const std::string& out, const std::vector<NamedRows>& files,
                            int64_t steps);

  // Holds one file of rows to all checksums in row_checksums.jsonl beside it, for programs that
  // read a run, also while it is still being written. The errors of Check. A file with no
  // row_checksums.jsonl beside it passes, as a copied curve has none, and so do rows behind the
  // newest checksum. Reads the file once.
  static absl::Status CheckBeside(const std::string& path);

  // For a run in `out` with these `files`, whose first step is `first_step`. Touches no file yet.
  RowChecksums(std::string out, std::vector<NamedRows> files, int64_t first_step)
      : out_(std::move(out)), files_(std::move(files)), first_step_(first_step) {}

  // Removes the rows of an earlier attempt for checkpoints with more than `first_step` steps behind
  // them, on the disk when it returns; a file that is not there is not made. To be called before
  // the rows of those steps are cut from the other files, whose next rows have other checksums: a
  // program that is killed in between leaves rows without checksums, which pass. The errors of
  // RowFile::Open.
  absl::Status Cut() const;

  // Adds the checksums for a checkpoint with `steps` behind it, whose rows are all written; rows of
  // later steps may be, too. Nothing where a later checkpoint, or the same, has been added. Reads
  // what was written since the checkpoint before. On the disk when it returns.
  absl::Status Add(int64_t steps);

 private:
  // The beginning of a file.
  struct Prefix {
    int64_t bytes = 0;
    uint64_t checksum = 0;
  };

  absl::StatusOr<RowFile> Open() const;

  std::string out_;
  std::vector<NamedRows> files_;
  int64_t first_step_;
  int64_t added_steps_ = 0;              // of the newest checkpoint that was added
  std::optional<RowFile> file_;          // once there is a checkpoint
  std::map<std::string, Prefix> known_;  // by file: what the newest row has
};

}  // namespace lockstep
