#include "core/comm/local/collective_queue.h"

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/program.h"
#include "core/base/status.h"
#include "core/comm/local/out_of_memory.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// A ready task up to this size is run where it is found, by the calling thread too: waking the
// worker costs as much as moving this much.
constexpr int64_t kAtOnceBytes = 64 << 10;
constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

}  // namespace

// One call: what Work holds.
class CollectiveQueue::CallState final : public WorkState {
 public:
  CallState(std::shared_ptr<CollectiveQueue> queue, Call call, MemberBuffers buffers)
      : queue_(std::move(queue)), call(std::move(call)), buffers(buffers) {}

  absl::Status Wait() override { return queue_->Wait(*this); }
  bool Done() override { return queue_->Done(*this); }
  void Drop() override { queue_->Drop(*this); }

 private:
  const std::shared_ptr<CollectiveQueue> queue_;

 public:  // guarded by the queue's mutex, except while kMoving
  Call call;
  const MemberBuffers buffers;
  Phase phase = Phase::kOver;  // until it stands in the queue
  int64_t sequence = 0;
  int64_t ledger_id = 0;
  bool small = false;
  int64_t round = -1;
  int64_t large_rounds = 0;  // up to and including this call's
  absl::Status status;
};

CollectiveQueue::CollectiveQueue(std::shared_ptr<WorldState> world,
                                 std::shared_ptr<LocalGroup> group,
                                 std::shared_ptr<const GroupInfo> info, Ledger& ledger)
    : world_(std::move(world)),
      group_(std::move(group)),
      info_(std::move(info)),
      ledger_(ledger),
      engine_(world_->engine(info_->members[static_cast<size_t>(info_->rank)])) {}

Work CollectiveQueue::Issue(Call call, MemberBuffers buffers) {
  auto state = std::make_shared<CallState>(shared_from_this(), std::move(call), buffers);
  // Where there is no memory for what follows, this is dropped, behind the lock: peers may already
  // be at the call's tensors, which nobody would wait for otherwise.
  Work work(state);
  Lock lock(mutex_);
  state->sequence = next_sequence_++;
  state->small = group_->IsSmall(state->call.signature);
  state->ledger_id =
      ledger_.Begin(info_, state->sequence, state->call.signature, state->call.label);
  if (state->call.open_entry != nullptr) *state->call.open_entry = state->ledger_id;
  calls_.push_back(state);
  state->phase = Phase::kQueued;
  UpdateNeed();  // before arriving: the last to arrive must see it
  const bool stopped = Carry(lock, kAtOnceBytes);
  const bool worker_only = waiting_threads_ == 0;
  lock.unlock();
  if (stopped && worker_only) engine_.WakeWorker();
  if (stopped && !worker_only) engine_.NotifyWaiters();
  return work;
}

void CollectiveQueue::Advance() {
  Lock lock(mutex_);
  if (waiting_threads_ == 0) Carry(lock, kUnlimited);
}

absl::Status CollectiveQueue::Wait(CallState& call) {
  try {
    return WaitThrowing(call);
  } catch (const std::bad_alloc&) {
    Drop(call);  // nobody else would: its owner has waited for it
    throw;
  }
}

absl::Status CollectiveQueue::WaitThrowing(CallState& call) {
  Lock lock(mutex_);
  if (call.phase == Phase::kOver) return call.status;
  const int64_t begin_nanos = NowNanos();
  ++waiting_threads_;
  UpdateNeed();
  Carry(lock, kUnlimited);
  if (call.phase != Phase::kOver) {
    lock.unlock();
    const auto over = [&] {
      lock.lock();
      Carry(lock, kUnlimited);
      const bool is_over = call.phase == Phase::kOver;
      lock.unlock();
      return is_over;
    };
    // In this order: a peer that has not seen the long wait is seen, and urged.
    bool long_wait = false;
    const auto delayed = [&] {
      long_wait = true;
      group_->BeginLongWait();
      UrgePeers();
    };
    const auto deadline = std::chrono::steady_clock::now() + world_->timeout();
    if (!engine_.WaitUntil(over, deadline, delayed)) {
      FailForTimeout(call);
      engine_.WaitUntil(over, Parking::TimePoint::max());  // the failure ends it
    }
    if (long_wait) group_->EndLongWait();
    lock.lock();
  }
  --waiting_threads_;
  UpdateNeed();
  // In this order: a long wait that began before UpdateNeed could not urge this rank.
  const bool wake = need_ == RankEngine::Need::kNeedy ||
                    (need_ == RankEngine::Need::kPatient && group_->SomebodyWaitsLong());
  absl::Status status = call.status;
  lock.unlock();
  if (wake) engine_.WakeWorker();
  if (call.call.open_entry == nullptr) {
    ledger_.AddExposed(call.ledger_id, NowNanos() - begin_nanos);
  }
  return status;
}

bool CollectiveQueue::Done(CallState& call) {
  Lock lock(mutex_);
  Carry(lock, kAtOnceBytes);
  if (call.phase == Phase::kOver) return true;
  lock.unlock();
  UrgePeers();  // whoever asks again and again waits
  return false;
}

void CollectiveQueue::Drop(CallState& call) {
  const int rank = info_->members[static_cast<size_t>(info_->rank)];
  DoOnceThereIsMemory([&] { world_->FailDropped(rank, Describe(call)); });
  // Returns at once, unless a task is running.
  DoOnceThereIsMemory([&] { (void)WaitThrowing(call); });
}

bool CollectiveQueue::Carry(Lock& lock, int64_t limit) {
  while (!calls_.empty()) {
    CallState& head = *calls_.front();
    switch (head.phase) {
      case Phase::kQueued:
        if (EndIfFailed()) return false;
        Arrive(head);
        break;

      case Phase::kArrived: {
        if (!group_->AllArrived(head.round)) {
          FailIfMembersLeft(head);
          EndIfFailed();
          return false;
        }
        if (group_->Disagree(head.round, info_->rank)) {
          world_->FailCall(absl::FailedPreconditionError(
              absl::StrCat("ranks disagree on call #", head.sequence, " of ", info_->ToString(),
                           ": ", group_->DescribeDisagreement(head.round),
                           ". All members of a group must make the same calls in the same order")));
          EndIfFailed();
          return false;
        }
        if (head.small) {
          group_->Move(head.round, info_->rank);
          EndHead(absl::OkStatus());
          break;
        }
        if (PayloadBytes(head.call.signature) > limit && group_->size() > 1) return true;
        // In this order: whoever sees the failure, and then nobody moving, may free its memory.
        group_->BeginMove();
        if (world_->failed()) {
          group_->CancelMove();
          EndIfFailed();
          return false;
        }
        head.phase = Phase::kMoving;
        lock.unlock();
        MoveLarge(head);
        lock.lock();
        head.phase = Phase::kFinished;
        break;
      }

      case Phase::kMoving:  // another thread of this rank is at it
        return false;

      case Phase::kFinished:
        if (!group_->AllFinished(head.large_rounds)) {
          EndIfFailed();
          return false;
        }
        EndHead(absl::OkStatus());
        break;

      case Phase::kOver:
        LOG(FATAL) << "a call that is over stands in its queue";
    }
  }
  return false;
}

void CollectiveQueue::MoveLarge(CallState& head) {
  try {
    group_->Move(head.round, info_->rank);
  } catch (const std::bad_alloc&) {
    // In this order: whoever sees nobody moving sees the failure.
    DoOnceThereIsMemory([this] { world_->FailRank(ledger_.rank(), StatusOfException()); });
    group_->CancelMove();
    return;
  }
  if (group_->FinishMove()) NotifyPeers();
}

void CollectiveQueue::Arrive(CallState& head) {
  head.phase = Phase::kArrived;
  head.round = next_round_++;
  if (!head.small) head.large_rounds = ++large_rounds_;
  if (group_->Arrive(info_->rank, head.round, head.call.signature, head.call.label, head.buffers)) {
    NotifyPeers();
  }
}

bool CollectiveQueue::EndIfFailed() {
  if (!world_->failed()) return false;
  while (!group_->Quiet()) std::this_thread::yield();  // lasts as long as a peer's task
  const absl::Status cause = world_->status();
  while (!calls_.empty()) {
    EndHead(
        Annotate(cause, absl::StrCat("rank ", ledger_.rank(), ", ", Describe(*calls_.front()))));
  }
  return true;
}

void CollectiveQueue::FailIfMembersLeft(const CallState& head) {
  if (!world_->somebody_left()) return;
  std::vector<int> gone;
  for (int member = 0; member < group_->size(); ++member) {
    // In this order: who is seen to have left has arrived by now, or never will.
    const int rank = info_->members[static_cast<size_t>(member)];
    if (world_->HasLeft(rank) && !group_->HasArrived(head.round, member)) gone.push_back(rank);
  }
  if (gone.empty()) return;
  world_->FailCall(absl::AbortedError(
      absl::StrCat(RanksText(gone), gone.size() == 1 ? " has" : " have",
                   " left and will not come to ", Describe(head), ", which ",
                   RanksText(group_->Ranks(head.round, LocalGroup::Who::kArrived)), " called")));
}

void CollectiveQueue::FailForTimeout(CallState& waited) {
  Lock lock(mutex_);
  if (waited.phase == Phase::kOver) return;
  const CallState& head = *calls_.front();
  const std::vector<int> missing = group_->Ranks(head.round, LocalGroup::Who::kMissing);
  std::string text =
      absl::StrCat("no answer within ",
                   FormatDuration(std::chrono::duration<double>(world_->timeout()).count()), ": ");
  if (missing.empty()) {
    absl::StrAppend(&text, "all ranks came to ", Describe(head), ", but some did not finish it");
  } else {
    absl::StrAppend(&text, RanksText(missing), " did not come to ", Describe(head), ", which ",
                    RanksText(group_->Ranks(head.round, LocalGroup::Who::kArrived)), " called");
  }
  world_->FailCall(absl::DeadlineExceededError(text));
}

void CollectiveQueue::EndHead(const absl::Status& status) {
  CallState& head = *calls_.front();
  if (head.call.open_entry == nullptr) {
    ledger_.Finish(head.ledger_id,
                   status.ok() ? LedgerEntry::State::kDone : LedgerEntry::State::kFailed,
                   NowNanos());
  }
  head.call.input = Tensor();
  head.call.output = Tensor();
  head.status = status;
  head.phase = Phase::kOver;
  calls_.pop_front();
  UpdateNeed();
  engine_.NotifyWaiters();
}

void CollectiveQueue::UpdateNeed() {
  using Need = RankEngine::Need;
  Need need = Need::kNone;
  if (waiting_threads_ == 0 && !calls_.empty()) {
    const CallState& head = *calls_.front();
    if (calls_.size() > 1) {
      need = Need::kNeedy;
    } else if (!head.small) {
      need = PayloadBytes(head.call.signature) > kAtOnceBytes ? Need::kNeedy : Need::kPatient;
    }  // a small call alone is nobody's concern but its caller's: peers do not depend on its end
  }
  if (need == need_) return;
  engine_.Add(need);
  engine_.Remove(need_);
  need_ = need;
}

void CollectiveQueue::NotifyPeers() {
  if (group_->SomebodyWaitsLong()) return UrgePeers();
  for (const int rank : info_->members) {
    if (rank != ledger_.rank()) world_->engine(rank).Notify();
  }
}

void CollectiveQueue::UrgePeers() {
  for (const int rank : info_->members) {
    if (rank != ledger_.rank()) world_->engine(rank).Urge();
  }
}

std::string CollectiveQueue::Describe(const CallState& call) const {
  return DescribeCall(call.call.signature, call.call.label, *info_, call.sequence);
}

}  // namespace lockstep
