#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "core/comm/call.h"
#include "core/comm/collective_task.h"
#include "core/comm/group_info.h"
#include "core/comm/ledger.h"
#include "core/comm/local/group.h"
#include "core/comm/local/rank_engine.h"
#include "core/comm/local/world_state.h"
#include "core/comm/work.h"

namespace lockstep {

// The collectives that one rank has called in one group, in order. Only the first takes part in a
// round (group.h); it goes through the phases below, carried by whichever thread of the rank comes
// by: the caller, who takes small and ready ones along at once; a thread that waits for one of
// them; else the worker. No thread ever holds on to a call while it waits for peers, so that calls
// of other groups pass by, in whatever order each rank has made them.
class CollectiveQueue final : public Background,
                              public std::enable_shared_from_this<CollectiveQueue> {
 public:
  CollectiveQueue(std::shared_ptr<WorldState> world, std::shared_ptr<LocalGroup> group,
                  std::shared_ptr<const GroupInfo> info, Ledger& ledger);

  // Appends a call. The tensors in `call` are kept until it is over; `buffers` is their memory.
  Work Issue(Call call, MemberBuffers buffers);

  // For the worker; without effect while a thread of the rank waits for this queue.
  void Advance() override;

  int64_t next_sequence() const { return next_sequence_; }

 private:
  enum class Phase {
    kQueued,    // behind others
    kArrived,   // in its round, waiting for others to come
    kMoving,    // a thread runs this member's task
    kFinished,  // this member's task is done, others' may not be
    kOver,
  };
  class CallState;

  using Lock = std::unique_lock<std::mutex>;

  // Carries the calls on until one must wait for peers, or has a task of more than `limit` bytes.
  // Lets go of the lock while it moves data. Returns whether it stopped because of the limit.
  bool Carry(Lock& lock, int64_t limit);
  void Arrive(CallState& head);
  // Whether the first call cannot proceed because its world has failed, in which case all calls
  // end.
  bool EndIfFailed();
  void FailIfMembersLeft(const CallState& head);
  void FailForTimeout(CallState& waited);
  void EndHead(const absl::Status& status);
  void UpdateNeed();
  void NotifyPeers();
  void UrgePeers();
  std::string Describe(const CallState& call) const;

  // Carries out a call that is ready, on this thread. What that throws fails the world.
  void MoveLarge(CallState& head);

  absl::Status Wait(CallState& call);
  absl::Status WaitThrowing(CallState& call);
  bool Done(CallState& call);
  void Drop(CallState& call);

  const std::shared_ptr<WorldState> world_;
  const std::shared_ptr<LocalGroup> group_;
  const std::shared_ptr<const GroupInfo> info_;
  Ledger& ledger_;
  RankEngine& engine_;

  std::mutex mutex_;  // guards what follows
  std::deque<std::shared_ptr<CallState>> calls_;
  int64_t next_sequence_ = 0;  // of the next call
  int64_t next_round_ = 0;     // the round at which the next call arrives
  int64_t large_rounds_ = 0;   // how many of the rounds so far were not small
  int waiting_threads_ = 0;    // of the rank, which carry the calls themselves
  RankEngine::Need need_ = RankEngine::Need::kNone;  // of the worker, for this queue
};

}  // namespace lockstep
