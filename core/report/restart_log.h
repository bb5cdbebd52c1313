// What //tools/launch and --elastic write down of a run: each restart of its ranks.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep {

// In the run directory: a row that says which formation was launched, then a row for each restart.
inline constexpr char kRestartsFile[] = "restarts.jsonl";

// The ranks of a run have ended before the run was complete, and were started again.
struct Restart {
  std::string time = {};       // of the end, in UTC: "2026-11-24T12:00:00Z"
  std::string cause = {};      // "rank 2: killed by signal 9 (Killed)", or what ranks have told
  int64_t steps = 0;           // behind the checkpoint that the run went on from; 0: none
  std::string state = {};      // where that lay: "memory", "disk"; empty: there was none
  std::string formation = {};  // that went on: "ddp dp=4"
  double seconds = -1;         // from the end to the next step; below 0: it never came

  // Whether the ranks came to the next step before they ended again.
  bool went_on() const { return seconds >= 0; }

  // "rank 2: killed by signal 9 (Killed): going on with ddp dp=4 from step 40 in memory"
  std::string Describe() const;
  // A row of the file, JSON without the end of the line; seconds are left out where there are none.
  // Bytes that are no UTF-8, as paths may have them, are replaced.
  std::string ToRow() const;

  friend bool operator==(const Restart&, const Restart&) = default;
};

// In the run directory: what the run went on from last. Ranks write it, who choose that themselves.
inline constexpr char kResumedFile[] = "resumed.json";

// What a run goes on from.
struct ResumedFrom {
  int64_t steps = 0;       // behind the checkpoint
  std::string state = {};  // where that lies: "memory", "disk"

  friend bool operator==(const ResumedFrom&, const ResumedFrom&) = default;
};

// Writes kResumedFile, and reads it. ReadResumed returns NotFound where there is none, and
// InvalidArgument where it holds something else.
absl::Status WriteResumed(const std::string& out, const ResumedFrom& from);
absl::StatusOr<ResumedFrom> ReadResumed(const std::string& out);

// The first line of a message, cut to 500 bytes: what a row has room for.
std::string CauseOf(absl::string_view message);

// A restart whose ranks end now. Its cause is CauseOf(message).
Restart RestartNow(absl::string_view message);

// Begins the file, if it is not there.
absl::Status BeginRestarts(const std::string& out, const std::string& formation);
// Adds a row, which survives the process. The file has been begun. A last row that a killed
// launcher has left incomplete, without its line end, is cut first.
absl::Status AppendRestart(const std::string& out, const Restart& restart);
// Puts `after` in the place of `before`, which AppendRestart has written last: readers see the one
// or the other. Where the last row is another one, as in a file that was begun meanwhile, the row
// is added.
absl::Status ReplaceRestart(const std::string& out, const Restart& before, const Restart& after);
// The restarts of a run, in order; none where no launcher has written any. A last row without line
// end is passed over. InvalidArgument, with file and line, for another row that cannot be read: the
// file was changed or is damaged.
absl::StatusOr<std::vector<Restart>> ReadRestarts(const std::string& out);

// A table for a terminal, with a line on the median time to go on.
std::string RestartsTable(const std::vector<Restart>& restarts);

}  // namespace lockstep
