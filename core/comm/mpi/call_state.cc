#include "core/comm/mpi/call_state.h"

#include <chrono>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep::mpi {

CallState::CallState(std::shared_ptr<RankState> rank, std::shared_ptr<const GroupInfo> group,
                     std::shared_ptr<const InFlight> queue, Call call, int64_t sequence,
                     std::shared_ptr<const Tensor> held)
    : rank_(std::move(rank)),
      group_(std::move(group)),
      queue_(std::move(queue)),
      call_(std::move(call)),
      sequence_(sequence),
      ledger_id_(rank_->ledger().Begin(group_, sequence, call_.signature, call_.label)),
      held_(std::move(held)) {
  if (call_.open_entry != nullptr) *call_.open_entry = ledger_id_;
}

absl::Status CallState::Wait() {
  RankState::Lock lock(rank_->mutex());
  if (!over_) {
    const int64_t begin_nanos = NowNanos();
    const auto is_over = [this] { return over_; };
    bool is_over_in_time =
        rank_->WaitUntil(lock, is_over, std::chrono::steady_clock::now() + rank_->timeout());
    if (!is_over_in_time) {
      // A process that was stopped finds its time over when it is woken up: what others have told
      // meanwhile comes first.
      rank_->WaitUntil(
          lock, [&] { return over_ || rank_->failed(); },
          std::chrono::steady_clock::now() + RankState::kLastLook);
      is_over_in_time = over_;
    }
    if (!is_over_in_time) {
      rank_->FailCall(absl::DeadlineExceededError(
          absl::StrCat("no answer within ",
                       FormatDuration(std::chrono::duration<double>(rank_->timeout()).count()),
                       ": ", DescribeMissing())));
      rank_->WaitUntil(lock, is_over, RankState::TimePoint::max());  // the failure ends it
    }
    if (call_.open_entry == nullptr) {
      rank_->ledger().AddExposed(ledger_id_, NowNanos() - begin_nanos);
    }
  }
  held_ = nullptr;
  return status_;
}

bool CallState::Done() {
  RankState::Lock lock(rank_->mutex());
  return rank_->WaitUntil(
      lock, [this] { return over_; }, RankState::TimePoint::min());
}

void CallState::Drop() {
  {
    RankState::Lock lock(rank_->mutex());
    rank_->FailDropped(Describe());
  }
  (void)Wait();
}

std::string CallState::Describe() const {
  return DescribeCall(call_.signature, call_.label, *group_, sequence_);
}

void CallState::End(const absl::Status& status) {
  if (call_.open_entry == nullptr) {
    rank_->ledger().Finish(ledger_id_,
                           status.ok() ? LedgerEntry::State::kDone : LedgerEntry::State::kFailed,
                           NowNanos());
  }
  call_.input = Tensor();
  call_.output = Tensor();
  status_ = status;
  over_ = true;
}

void CallState::EndFailed() {
  if (rank_->MayEnd() == RankState::End::kGivenUp) {
    new Tensor(call_.input);
    new Tensor(call_.output);
  }
  End(Annotate(rank_->status(), absl::StrCat("rank ", rank_->rank(), ", ", Describe())));
}

std::byte* MemoryOf(const Tensor& tensor) {
  if (!tensor.defined() || tensor.elements() == 0) return nullptr;
  CHECK(tensor.device().type == DeviceType::kCpu) << tensor.ToString();
  CHECK(tensor.raw() != nullptr) << tensor.ToString() << " is released";
  return tensor.raw();
}

}  // namespace lockstep::mpi
