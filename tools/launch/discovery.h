// Which hosts are at hand, as a program of the user's says it.

#pragma once

#include <sys/types.h>  // pid_t

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/file.h"

namespace lockstep {

// Hosts at hand, as Horovod's discovery scripts print them: "host:slots" a line.
struct Slots {
  int ranks = 0;           // that may run
  std::string hosts = {};  // "a:4,b:2" for mpirun's --host; empty: not known
};

// Reads what a discovery script has printed. InvalidArgument names a line that is none.
absl::StatusOr<Slots> ParseSlots(const std::string& text);

// A call of a discovery script. The caller does not wait for the script, which may hang: it goes on
// to watch its ranks and to hear signals, and takes none of them here.
//
//   Discovery discovery("./hosts.sh", 60);
//   ... now and then: if (const auto slots = discovery.Poll()) ...
class Discovery {
 public:
  // Starts the script in a process group of its own. Its standard error stream is ours.
  Discovery(const std::string& script, double limit_seconds);
  Discovery(const Discovery&) = delete;
  Discovery& operator=(const Discovery&) = delete;
  // Kills a script that still runs, with what it has started in its process group.
  ~Discovery();

  // What the script has found; nullopt while it runs. Waits for nothing. FailedPrecondition where
  // the script has failed, InvalidArgument where it has printed something else than hosts,
  // DeadlineExceeded where it has run for more than `limit_seconds`, which ends it; NotFound,
  // PermissionDenied and so on where it could not be started. These name the script. Not to be
  // called again after it has returned something.
  std::optional<absl::StatusOr<Slots>> Poll();

 private:
  absl::Status Start();
  // Takes what the script has printed so far.
  void Read();
  // Kills and reaps the script.
  void End();

  const std::string script_;
  const double limit_seconds_;
  const int64_t start_nanos_;
  pid_t pid_ = -1;  // -1: has ended, or has not begun
  FileDescriptor out_;
  std::string text_;            // that it has printed
  const absl::Status started_;  // by the constructor, behind the members that Start fills
};

}  // namespace lockstep
