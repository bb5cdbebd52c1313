#include "core/comm/device/call_queue.h"

#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "core/base/clock.h"
#include "core/base/program.h"
#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {

// One call: what Work holds.
class CallQueue::InFlight final : public WorkState {
 public:
  InFlight(CallQueue& queue, DeviceCall call) : queue_(queue), call(std::move(call)) {}

  absl::Status Wait() override {
    const int64_t begin_nanos = NowNanos();
    AwaitOver();
    queue_.owner_.book().AddExposed(ledger_entry, NowNanos() - begin_nanos);
    LetGo();
    return status;
  }

  bool Done() override {
    std::lock_guard lock(queue_.mutex_);
    return over;
  }

  void Drop() override {
    queue_.owner_.Abandon(queue_.owner_.book().Describe(ledger_entry));
    AwaitOver();
    LetGo();
  }

 private:
  void AwaitOver() {
    std::unique_lock lock(queue_.mutex_);
    queue_.changed_.wait(lock, [this] { return over; });
  }

  // Lets go of the tensors, whose memory is given back in the order in which the rank computes.
  void LetGo() {
    if (let_go_) return;
    let_go_ = true;
    try {
      if (mark != nullptr) queue_.owner_.device().ComputeAwaits(*mark);
    } catch (const StatusException& error) {
      if (status.ok()) status = error.status();
    }
    mark = nullptr;
    call = {};
  }

  CallQueue& queue_;
  bool let_go_ = false;

 public:  // the queue's, until `over`, which its mutex guards
  DeviceCall call;
  int64_t ledger_entry = 0;
  Work meeting;
  DeviceMarkPtr mark;
  absl::Status status;
  bool over = false;
};

CallQueue::CallQueue(Owner& owner, std::unique_ptr<DeviceCarrier> carrier)
    : owner_(owner), carrier_(std::move(carrier)), thread_([this] { Run(); }) {}

CallQueue::~CallQueue() {
  {
    std::lock_guard lock(mutex_);
    CHECK(calls_.empty()) << "a communicator goes before its works";
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Work CallQueue::Issue(Call call) {
  const Tensor& any = call.input.defined() ? call.input : call.output;
  const int64_t held_bytes = carrier_->HeldBytes(call.signature);
  std::shared_ptr<const Tensor> held =
      held_bytes > 0 ? held_.Hold(held_bytes, any.allocator()) : nullptr;
  auto in_flight = std::make_shared<InFlight>(*this, DeviceCall{.call = std::move(call),
                                                                .number = next_number_++,
                                                                .ready = owner_.device().Computed(),
                                                                .held = std::move(held)});
  carrier_->Begin(in_flight->call);
  in_flight->meeting = owner_.Meet(in_flight->call, &in_flight->ledger_entry);
  {
    std::lock_guard lock(mutex_);
    calls_.push_back(in_flight);
  }
  changed_.notify_all();
  return Work(std::move(in_flight));
}

void CallQueue::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !calls_.empty(); });
    if (stop_) return;
    const std::shared_ptr<InFlight> call = calls_.front();
    lock.unlock();
    Carry(*call);
    lock.lock();
    calls_.pop_front();
    call->over = true;
    changed_.notify_all();
  }
}

void CallQueue::Carry(InFlight& call) {
  call.status = call.meeting.Wait();
  if (call.status.ok()) {
    try {
      call.mark = carrier_->Move(call.call);
      if (call.mark == nullptr) call.status = owner_.WorldStatus();
      CHECK(call.mark != nullptr || !call.status.ok()) << "a call was given up in a sound world";
    } catch (const std::exception&) {
      call.status = Annotate(StatusOfException(), owner_.book().Describe(call.ledger_entry));
      owner_.Fail(call.status);
    }
  }
  if (!call.status.ok()) GiveUp(call);
  owner_.book().Finish(call.ledger_entry,
                       call.status.ok() ? LedgerEntry::State::kDone : LedgerEntry::State::kFailed,
                       NowNanos());
}

void CallQueue::GiveUp(InFlight& call) {
  try {
    call.mark = carrier_->GiveUp(call.call);
  } catch (const std::exception&) {
    // The device has failed too, and nothing that it has yet to do is in any order. The call's own
    // status says what came first.
    LOG(ERROR) << StatusOfException().message();
  }
}

}  // namespace lockstep
