// Programs started from ours.
//
//   LS_ASSIGN_OR_RETURN(ProcessResult result,
//                       RunProcess({.arguments = {"strategies/single/main", "--help"}}));
//   if (!result.ok()) ... result.Describe(), result.err ...

#pragma once

#include <sys/types.h>  // pid_t

#include <csignal>  // sigset_t
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep {

struct ProcessOptions {
  enum class Stream {
    kCapture,  // gathered in memory
    kInherit,  // ours, so that the program sees a terminal where we have one
  };

  std::vector<std::string> arguments;                   // the first is the program's path
  std::map<std::string, std::string> environment = {};  // laid over ours
  Stream out = Stream::kCapture;
  Stream err = Stream::kCapture;
};

// How a program ended.
struct ProcessResult {
  int exit_code = 0;         // 0 when a signal ended it
  int signal = 0;            // that ended it, or 0
  bool interrupted = false;  // we were sent SIGINT or SIGTERM meanwhile, and passed it on
  std::string out, err;      // of captured streams

  bool ok() const { return exit_code == 0 && signal == 0; }

  // "exit code 1", "killed by signal 9 (Killed)"
  std::string Describe() const;
};

// A running program. From Start to the end of Wait the calling thread holds SIGINT and SIGTERM
// back: what arrives then (Ctrl-C) is passed on to the program, and the caller goes on to tidy up.
// For one thread at a time; a process that waits should have no other thread that takes these
// signals.
class Subprocess {
 public:
  // Starts the program, standard input empty. An error names a program that cannot be started.
  static absl::StatusOr<Subprocess> Start(const ProcessOptions& options);

  Subprocess(Subprocess&& other) noexcept;
  Subprocess& operator=(Subprocess&&) = delete;
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  // Kills and reaps a program that was not waited for.
  ~Subprocess();

  pid_t pid() const { return pid_; }

  // Whether the program is over. Waits for nothing; before Wait.
  bool HasEnded() const;

  // Sends a signal, e.g. SIGKILL. Before Wait.
  void Signal(int number) const;

  // Waits for the end, at most once. All output that is captured is held in memory.
  ProcessResult Wait();

 private:
  Subprocess(pid_t pid, int out, int err, const sigset_t& old_mask)
      : pid_(pid), out_(out), err_(err), old_mask_(old_mask) {}

  pid_t pid_;          // -1: waited for, or moved from
  int out_, err_;      // our ends of the pipes, or -1
  sigset_t old_mask_;  // what the thread held back before Start
};

// Start and Wait.
absl::StatusOr<ProcessResult> RunProcess(const ProcessOptions& options);

}  // namespace lockstep
