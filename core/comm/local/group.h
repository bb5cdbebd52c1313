#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/comm/collective_task.h"
#include "core/comm/group_info.h"
#include "core/comm/local/mailbox.h"
#include "core/comm/signature.h"

namespace lockstep {

// The place where the members of one group meet: shared by their threads.
//
// Collectives pass one after the other, in rounds. A member arrives at a round by showing its call;
// once all have arrived, each compares all calls, and each comes to the same conclusion. Small
// inputs are shown by value, and every member takes its output from there: nobody waits twice.
// Otherwise each member runs its task straight on the others' memory and reports it finished, and
// the round is over when all have.
//
// A member arrives at a round only after its own previous one is over. Therefore at most two rounds
// are in use at any time, and what members show is kept twice.
class LocalGroup {
 public:
  // Inputs up to this size are shown by value. Measured on two cores, the second meeting costs more
  // than copying 4 KiB.
  static constexpr int64_t kSmallBytes = 4096;

  explicit LocalGroup(std::vector<int> members);

  const std::vector<int>& members() const { return members_; }  // world ranks
  int size() const { return static_cast<int>(members_.size()); }

  // Whether rounds of this signature show their inputs by value.
  bool IsSmall(const Signature& signature) const;

  // Shows a member's call. True for the one that is last to arrive.
  bool Arrive(int member, int64_t round, const Signature& signature, absl::string_view label,
              MemberBuffers buffers);
  bool AllArrived(int64_t round) const;
  bool HasArrived(int64_t round, int member) const;

  // Once all have arrived: whether a member's call is not what `member` called, ...
  bool Disagree(int64_t round, int member) const;
  // ... who called what, and ...
  std::string DescribeDisagreement(int64_t round) const;
  // ... runs this member's task, or, in a small round, takes its output.
  void Move(int64_t round, int member) const;

  // Around Move in rounds that are not small. FinishMove is true for the last of its round.
  void BeginMove() { begun_.fetch_add(1); }
  void CancelMove() { begun_.fetch_sub(1); }
  bool FinishMove() { return (finished_.fetch_add(1) + 1) % size() == 0; }
  // Whether all members have finished the first `rounds` rounds that are not small.
  bool AllFinished(int64_t rounds) const { return finished_.load() >= rounds * size(); }
  // Whether nobody is amid a move. In this order: a move that is seen finished is seen begun, so
  // one that is under way cannot make the counts equal.
  bool Quiet() const {
    const int64_t finished = finished_.load();
    return begun_.load() == finished;
  }

  // Around a wait that takes long. Meanwhile members that finish or arrive urge their peers on.
  void BeginLongWait() { long_waits_.fetch_add(1); }
  void EndLongWait() { long_waits_.fetch_sub(1); }
  bool SomebodyWaitsLong() const { return long_waits_.load() > 0; }

  // The ranks in the world of those that have arrived at the round, or of those that have not.
  enum class Who { kArrived, kMissing };
  std::vector<int> Ranks(int64_t round, Who who) const;

  // Messages to a member.
  Mailbox& mailbox(int member) { return mailboxes_[static_cast<size_t>(member)]; }

 private:
  struct alignas(64) Slot {
    std::atomic<int64_t> round = -1;  // the latest that the member has arrived at in this slot
    Signature signature;
    std::string label;
    MemberBuffers buffers;
    alignas(64) std::byte small[kSmallBytes];
  };
  struct alignas(64) Counter {
    std::atomic<int64_t> value = 0;
  };

  const std::vector<Slot>& slots(int64_t round) const { return slots_[round % 2]; }

  const std::vector<int> members_;
  std::array<std::vector<Slot>, 2> slots_;  // by parity of the round
  std::vector<Mailbox> mailboxes_;          // by receiver
  std::array<Counter, 2> arrived_;          // all arrivals so far, by parity of the round
  alignas(64) std::atomic<int64_t> begun_ = 0;
  alignas(64) std::atomic<int64_t> finished_ = 0;
  alignas(64) std::atomic<int> long_waits_ = 0;
};

}  // namespace lockstep
