#pragma once

#include <chrono>

namespace lockstep {

// Decides whether the loops of a thread are shared with its workers or run by the thread alone.
//
// On a machine that other programs keep busy, a worker may lose its core in the middle of a chunk,
// and the loop then waits for milliseconds. An account shows whether workers pay all the same: time
// that they save is credit, time for which loops wait is spent. When the account is overdrawn the
// workers rest, and each rest is twice as long as the one before, so that a machine that stays busy
// costs little. Credit is limited, and whenever the limit is reached the next rest is halved: a
// machine that is quiet but for hiccups has all workers all the time.
class WorkerBenefit {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = Clock::duration;

  static constexpr Duration kShortestRest = std::chrono::milliseconds(4);
  static constexpr Duration kLongestRest = std::chrono::milliseconds(1024);
  // More than workers save before they lose their cores where each program has one for some
  // milliseconds in turn.
  static constexpr Duration kMostCredit = std::chrono::milliseconds(20);
  static constexpr Duration kOverdraft = std::chrono::microseconds(500);
  // Loops are judged by their sum over at least this time: those of some microseconds scatter.
  static constexpr Duration kWindow = std::chrono::milliseconds(2);

  // Whether a loop that begins at `now` is shared with workers. `now` never decreases.
  bool Shares(Clock::time_point now) const { return now >= rest_end_; }

  // Reports a shared loop: the thread had done its chunks after `own`, waited for `waited` then,
  // and would have needed `saved` for the chunks that workers did.
  void Record(Duration own, Duration waited, Duration saved);

  // Whether the loops since the last judgement make a window.
  bool HasWindow() const { return together_ >= kWindow; }

  // Judges the window. `disturbed`: the thread itself has lost its core to another program
  // meanwhile. Its chunks then seem to be long, and nothing is known of what workers saved.
  void Judge(Clock::time_point now, bool disturbed);

 private:
  Clock::time_point rest_end_ = Clock::time_point::min();
  Duration rest_ = kShortestRest;  // the length of the next rest
  Duration credit_{};
  // Sums over the window.
  Duration together_{};
  Duration waited_{};
  Duration saved_{};
};

}  // namespace lockstep
