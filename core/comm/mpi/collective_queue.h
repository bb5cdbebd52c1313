#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/call.h"
#include "core/comm/collective_task.h"
#include "core/comm/group_info.h"
#include "core/comm/held_memory.h"
#include "core/comm/mpi/announcement.h"
#include "core/comm/mpi/movement.h"
#include "core/comm/mpi/rank_state.h"
#include "core/comm/mpi/transport.h"
#include "core/comm/work.h"

namespace lockstep::mpi {

// Returns what a member holds beside the tensors of a call: nothing where the input goes along with
// the announcement, or in messages.
int64_t HeldBytes(const Signature& signature, int size, bool in_place);

// The collectives that this rank has called in one group, in order. The first of them is announced
// to all members; once all have announced theirs, each compares all calls, and each comes to the
// same conclusion. Small inputs go along with the announcement, and every member takes its output
// from there; else the members exchange chunks (movement.h).
class CollectiveQueue final : public InFlight,
                              public std::enable_shared_from_this<CollectiveQueue> {
 public:
  CollectiveQueue(std::shared_ptr<RankState> rank, std::shared_ptr<const GroupInfo> group,
                  int context);
  ~CollectiveQueue() override;

  // Appends a call. The tensors in `call` are kept until it is over; `buffers` is their memory.
  Work Issue(Call call, MemberBuffers buffers);

  void Advance() override;
  bool Busy() const override { return !calls_.empty(); }
  bool MovesData() const override { return phase_ == Phase::kMoving; }
  bool Settle() override;

 private:
  class Collective;
  enum class Phase { kQueued, kAnnounced, kMoving };

  // What another member's announcement arrives in.
  struct Member {
    std::vector<std::byte> buffer{};
    Transport::Request request{};
    bool arrived = false;
    Announcement announcement{};
  };

  void Announce(const Collective& head);
  // Takes what has arrived; returns whether all has.
  bool AllArrived();
  void FailIfMembersLeft(const Collective& head);
  // Fails the world unless all have called the same.
  bool Agree(const Collective& head);
  void TakeOutput(const Collective& head);
  // Whether the present exchange is over.
  bool Exchanged();
  void StartExchange();
  void EndHead(const absl::Status& status);
  void EndAll();
  std::vector<int> Ranks(bool arrived) const;
  Transport::Address AddressOf(int member, Transport::Channel channel) const;

  const std::shared_ptr<RankState> rank_;
  const std::shared_ptr<const GroupInfo> group_;
  const int context_;

  std::deque<std::shared_ptr<Collective>> calls_;
  int64_t next_sequence_ = 0;
  HeldMemory held_;
  // The phase of the first call.
  Phase phase_ = Phase::kQueued;
  std::vector<Member> members_;
  std::unique_ptr<Movement> movement_;
  Exchange exchange_;
  std::vector<Transport::Request> sends_, receives_;
};

}  // namespace lockstep::mpi
