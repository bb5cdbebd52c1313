#pragma once

#include <atomic>
#include <csignal>
#include <cstdint>
#include <memory>

#include "absl/types/span.h"
#include "core/base/signal_watcher.h"
#include "core/run/stop/stop_request.h"

namespace lockstep {

// The exit code of a run that a signal has stopped, and that --resume goes on with: "temporary
// failure" of sysexits.h.
inline constexpr int kStoppedExitCode = 75;

// What stops a run of threads, and what stops one of processes: launchers send SIGTERM to the ranks
// that are left when one has died, and SIGKILL soon after. These have just the time to say who died
// (core/comm/mpi/process.h).
inline constexpr int kSignalsOfThreads[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
inline constexpr int kSignalsOfProcesses[] = {SIGINT, SIGHUP, SIGUSR1};

// Stops a run on some signals (SIGUSR1 is a batch system's warning): the
// first after the step that ranks are at, or at once where none has begun; a second at once, with
// exit code 128 + its number, as shells have it. The standard error stream is told.
class RunSignals {
 public:
  // Made before other threads are started.
  RunSignals(std::shared_ptr<StopRequest> stop, absl::Span<const int> signals);

  // What this process says when it takes the first signal. Ranks that are processes agree on their
  // last step only when they come to the next one, so they name none, and one of them speaks. That
  // a second signal ends the process is said in any case.
  enum class Notice { kWithStep, kWithoutStep, kNone };
  void SetNotice(Notice notice) { notice_ = notice; }

 private:
  void Take(int signal);

  const std::shared_ptr<StopRequest> stop_;
  std::atomic<Notice> notice_ = Notice::kWithStep;
  int64_t first_nanos_ = 0;  // when the first signal came; the watcher's alone
  SignalWatcher watcher_;
};

}  // namespace lockstep
