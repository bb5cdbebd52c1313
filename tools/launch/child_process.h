#pragma once

#include <sys/types.h>  // pid_t

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/file.h"

namespace lockstep {

// A program that the launcher has started and looks at now and then. Whoever has it reaps it.
struct ChildProcess {
  pid_t pid = -1;
  FileDescriptor written;  // what it writes to one of its streams; reading waits for nothing
};

// Starts the program `path` with `words`, of which the first is its own name, in a process group of
// its own: Ctrl-C is for the launcher, who knows what to do about it. The program is killed with
// the thread that calls, takes no signals that this one holds back, and has an empty standard
// input. `stream`: STDOUT_FILENO or STDERR_FILENO; the other one is ours. A program that cannot be
// run ends with 127. Unavailable, ResourceExhausted and so on where the system has no process to
// give.
absl::StatusOr<ChildProcess> StartChild(const std::string& path, std::vector<std::string> words,
                                        int stream);

}  // namespace lockstep
