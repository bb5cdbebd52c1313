// Kills ranks that are processes amid their calls to each other: at a chosen one of the messages
// that a call consists of. The program that kills asks for it in a file that it shares with the
// ranks; these are linked with dying_ranks.cc, which sees every message before MPI does.

#pragma once

#include <sys/types.h>  // pid_t

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "core/comm/operation.h"

namespace lockstep {

// Where a rank is in a call when it dies.
enum class CallMoment : int {
  kHasSent,    // it has sent a message of the call, and taken in nothing since
  kIsAwaited,  // a peer has come to the collective and waits; the rank itself has not sent yet
  kWaits,      // it has sent its part of the collective and waits; a peer has not sent yet
};
inline constexpr std::array<CallMoment, 3> kCallMoments = {
    CallMoment::kHasSent, CallMoment::kIsAwaited, CallMoment::kWaits};

// The environment variable with the path of a CallKill's file, for ranks.
inline constexpr char kCallKillVariable[] = "LOCKSTEP_CALL_KILL";

// One kill at a time, asked for and carried out. Shared memory of processes.
struct CallKill {
  static constexpr int kMostRanks = 8;
  enum State : int { kNone, kAsked, kTaken, kDone };

  // Asks for the death of a rank at a moment of the kind `at`, when so many others have passed;
  // with `only_changes` in calls of a change of mesh alone.
  void Ask(int victim, CallMoment at, int64_t moments_before, bool only_changes);
  // Takes back what was not carried out yet.
  void Withdraw() { state = kNone; }
  bool IsDone() const { return state == kDone; }

  std::atomic<int> state;
  int rank;
  CallMoment moment;
  bool only_changes;
  std::atomic<int64_t> moments_left;
  // The call that the rank has died in, once it is done, whether that moves the state to another
  // mesh, and whether the message was one of the call's data: ranks announce a call first, with its
  // data where these are small.
  Operation operation;
  bool is_of_change;
  bool is_data;
  std::array<std::atomic<pid_t>, kMostRanks> pids;  // of ranks that have sent something
};

// The CallKill in the file `path`, for good. `make` makes the file anew.
absl::StatusOr<CallKill*> MapCallKill(const std::string& path, bool make);

}  // namespace lockstep
