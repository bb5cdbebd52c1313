#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// A program that is linked with failing_files.cc calls the system through it for all that changes
// files: write, pwrite, rename, fsync, ftruncate, mkdir, the ways to remove a file, and open where
// it may make one. So one of these calls can be made to fail, wherever it is made from. An fsync
// that does not fail does nothing: what a process has written outlives it.
enum class FileFault {
  kNone,     // calls are counted
  kKill,     // the process is killed in place of the call
  kNoSpace,  // the call fails with ENOSPC
  kIoError,  // the call fails with EIO
};

// From here on, counts the calls that change something in `folder` in `*calls`, which may be memory
// that processes share, and fails the one that makes the count `at`. For a process that does
// nothing else, once.
void FailFileCall(const std::string& folder, FileFault fault, int64_t at, int64_t* calls);

}  // namespace lockstep
