#include "core/comm/local/message_state.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/comm/local/out_of_memory.h"

namespace lockstep {
namespace {

// As in collective_queue.cc: cheaper to copy at once than to wake the worker.
constexpr int64_t kAtOnceBytes = 64 << 10;

}  // namespace

MessageState::MessageState(std::shared_ptr<WorldState> world, LocalGroup& group,
                           std::shared_ptr<const GroupInfo> info, Ledger& ledger, Call call,
                           int64_t sequence)
    : world_(std::move(world)),
      info_(std::move(info)),
      ledger_(ledger),
      call_(std::move(call)),
      sequence_(sequence),
      ledger_id_(ledger.Begin(info_, sequence, call_.signature, call_.label)) {
  if (call_.open_entry != nullptr) *call_.open_entry = ledger_id_;
  if (world_->failed()) return;
  const bool sends = call_.signature.operation == Operation::kSend;
  const int root = call_.signature.root;
  RankEngine& engine = world_->engine(ledger_.rank());
  Mailbox::Posted posted =
      group.mailbox(sends ? root : info_->rank).Post(sends ? info_->rank : root, call_, engine);
  transfer_ = std::move(posted.transfer);
  if (posted.meeting == Mailbox::Meeting::kFirst) return;
  try {
    if (posted.meeting == Mailbox::Meeting::kDisagree) {
      FailForDisagreement();
    } else if (transfer_->bytes <= kAtOnceBytes) {
      transfer_->TryMove();
    } else {
      // The peer may be waiting, or this thread may soon, and then need not wait for the worker.
      engine.AddJob([transfer = transfer_] { transfer->TryMove(); });
      world_->engine(peer()).NotifyWaiters();
    }
  } catch (...) {
    transfer_->Withdraw();  // the peer must not touch memory that nobody looks after any more
    throw;
  }
}

absl::Status MessageState::Wait() {
  try {
    return WaitThrowing();
  } catch (const std::bad_alloc&) {
    Drop();  // nobody else would: its owner has waited for it
    throw;
  }
}

absl::Status MessageState::WaitThrowing() {
  if (Carry()) return status_;
  const int64_t begin_nanos = NowNanos();
  const auto over = [this] { return Carry(); };
  RankEngine& engine = world_->engine(ledger_.rank());
  if (!engine.WaitUntil(over, std::chrono::steady_clock::now() + world_->timeout())) {
    FailForTimeout();
    engine.WaitUntil(over, Parking::TimePoint::max());  // the failure ends it
  }
  if (call_.open_entry == nullptr) ledger_.AddExposed(ledger_id_, NowNanos() - begin_nanos);
  return status_;
}

bool MessageState::Done() { return Carry(); }

void MessageState::Drop() {
  DoOnceThereIsMemory([&] { world_->FailDropped(ledger_.rank(), Describe()); });
  DoOnceThereIsMemory([&] { (void)WaitThrowing(); });
}

bool MessageState::Carry() {
  if (over_) return true;
  if (transfer_ != nullptr) {
    transfer_->TryMove();
    if (transfer_->state.load() == Transfer::State::kDone) {
      End(absl::OkStatus(), transfer_->end_nanos);
      return true;
    }
    // In this order: if the peer is seen to have left, it has matched by now, or never will.
    if (world_->somebody_left() && world_->HasLeft(peer()) &&
        transfer_->state.load() == Transfer::State::kHalf) {
      world_->FailCall(
          absl::AbortedError(absl::StrCat("rank ", peer(), " has left and will not come to ",
                                          Describe(), ", which rank ", ledger_.rank(), " called")));
    }
  }
  if (!world_->failed()) return false;
  if (transfer_ != nullptr && transfer_->Withdraw()) {
    End(absl::OkStatus(), transfer_->end_nanos);
  } else {
    End(Annotate(world_->status(), absl::StrCat("rank ", ledger_.rank(), ", ", Describe())),
        NowNanos());
  }
  return true;
}

void MessageState::End(const absl::Status& status, int64_t end_nanos) {
  if (call_.open_entry == nullptr) {
    ledger_.Finish(ledger_id_,
                   status.ok() ? LedgerEntry::State::kDone : LedgerEntry::State::kFailed,
                   end_nanos);
  }
  call_.input = Tensor();
  call_.output = Tensor();
  status_ = status;
  over_ = true;
}

void MessageState::FailForDisagreement() {
  const bool sends = call_.signature.operation == Operation::kSend;
  const std::string own = DescribeCall(call_.signature, call_.label);
  const std::string other = DescribeCall(transfer_->signature, transfer_->label);
  const int from = sends ? ledger_.rank() : peer();
  const int to = sends ? peer() : ledger_.rank();
  world_->FailCall(absl::FailedPreconditionError(
      absl::StrCat("ranks disagree on message #", sequence_, " from rank ", from, " to rank ", to,
                   " of ", info_->ToString(), ": rank ", from, " called ", sends ? own : other,
                   ", rank ", to, " called ", sends ? other : own,
                   ". Messages are received in the order in which they are sent")));
}

void MessageState::FailForTimeout() {
  world_->FailCall(absl::DeadlineExceededError(absl::StrCat(
      "no answer within ", FormatDuration(std::chrono::duration<double>(world_->timeout()).count()),
      ": rank ", peer(), " did not come to ", Describe(), ", which rank ", ledger_.rank(),
      " called")));
}

std::string MessageState::Describe() const {
  return DescribeCall(call_.signature, call_.label, *info_, sequence_);
}

}  // namespace lockstep
