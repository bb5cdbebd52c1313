#include "core/run/stop/run_signals.h"

#include <string.h>  // sigabbrev_np
#include <unistd.h>  // _exit

#include <csignal>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"

namespace lockstep {
namespace {

// Ctrl-C reaches a program from the terminal and again from who has started it: one wish.
constexpr double kOneWishSeconds = 1;

[[noreturn]] void End(int signal) {
  std::fprintf(stderr, "ended by SIG%s; --resume goes on from the newest checkpoint\n",
               sigabbrev_np(signal));
  _exit(128 + signal);
}

}  // namespace

RunSignals::RunSignals(std::shared_ptr<StopRequest> stop, absl::Span<const int> signals)
    : stop_(std::move(stop)),
      watcher_({signals.begin(), signals.end()}, [this](int signal) { Take(signal); }) {}

void RunSignals::Take(int signal) {
  if (first_nanos_ != 0) {
    if (SecondsSince(first_nanos_) > kOneWishSeconds) End(signal);
    return;
  }
  first_nanos_ = NowNanos();
  const std::optional<int64_t> steps = stop_->Stop();
  if (!steps) End(signal);
  const Notice notice = notice_;
  if (notice == Notice::kNone) return;
  const std::string last = notice == Notice::kWithStep ? absl::StrCat("step ", *steps)
                                                       : "the step that is being trained";
  std::fprintf(stderr, "SIG%s: stopping after %s; a second signal ends at once\n",
               sigabbrev_np(signal), last.c_str());
}

}  // namespace lockstep
