// What every program does around its own work.

#pragma once

#include <exception>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep {

// Returns the exception that is being handled as a status: that of a StatusException;
// ResourceExhausted, with what to lower, where memory has run out; else Internal, with what the
// exception says. Call it inside a catch block. Whoever starts a thread wraps its body so, and
// hands the status to whoever waits for the thread: what leaves a thread's body ends the program.
absl::Status StatusOfException();

// Calls `body` and returns its status; StatusOfException() where it throws.
template <typename Body>
absl::Status Catching(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const std::exception&) {
    return StatusOfException();
  }
}

// Runs a program and returns its exit code: that of `run`, or 1 after the message of its error on
// the standard error stream. Whatever `run` throws is an error, and so is a standard output that
// could not be written. A write beyond the limit on the size of files (ulimit -f) fails with its
// error from then on, instead of ending the process without a word.
int ExitCodeOf(const std::function<absl::StatusOr<int>()>& run);

}  // namespace lockstep
