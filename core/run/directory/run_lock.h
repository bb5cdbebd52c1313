// The lock of a run directory: run.lock, which says what program has it.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "core/base/file.h"

namespace lockstep {

// Takes the advisory lock (flock) of the open file `path`, until it is closed. FailedPrecondition,
// which names the directory and the holder, where another program has it.
absl::Status LockRun(const std::string& path, const FileDescriptor& file);

// Writes this program into a file whose lock it has: "host b, process 12". The error of a file that
// cannot be written names it.
absl::Status WriteHolder(const std::string& path, const FileDescriptor& file);

// The program of another host that has the lock of the file `path`: "host b, process 12"; empty
// where none has. A file server keeps the locks of a host that has died until its lease ends, 90 s
// for Linux's NFS 4 (RFC 8881, section 8.3). Takes the lock for a moment: while no rank runs.
std::string HolderElsewhere(const std::string& path);

}  // namespace lockstep
