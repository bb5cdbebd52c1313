#pragma once

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace lockstep {

// A backend's side of one call in flight.
class WorkState {
 public:
  virtual ~WorkState() = default;

  // As Work says; any number of times, from one thread at a time.
  virtual absl::Status Wait() = 0;
  virtual bool Done() = 0;

  // The owner goes away without having waited: fails the rank, then returns once nobody touches the
  // call's tensors any more.
  virtual void Drop() = 0;
};

// The handle of an asynchronous collective or message. Until Wait() has returned, the call's
// tensors belong to it: nobody writes its inputs or touches its outputs.
//
//   Work gathered = group.AllGather(shard, whole, "parameters");
//   ... compute something else ...
//   LS_RETURN_IF_ERROR(gathered.Wait());
//
// Every work is waited for. Dropping one unwaited (or assigning over it) is how a step that fails
// looks from here, by an early return or while an exception unwinds. So that nobody waits for what
// will not come, it fails the rank as Communicator::Abort does, and returns once nobody touches the
// tensors any more, without waiting for peers that are not there. The error that ended the step
// reaches everybody as the cause when the rank's runner reports it (core/comm/launch.h).
class [[nodiscard]] Work {
 public:
  // Nothing: done, and waits return OK at once.
  Work() = default;
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}

  Work(Work&&) noexcept = default;
  Work& operator=(Work&& other) noexcept {
    if (this != &other) {
      Drop();
      state_ = std::move(other.state_);
      waited_ = other.waited_;
    }
    return *this;
  }
  ~Work() { Drop(); }

  // Returns once the call is over. OK: outputs hold their values and inputs may be reused.
  // Otherwise the outputs are undefined and the communicator has failed for good; the error says
  // who did not come, disagreed or failed, and what each rank called last. Waiting again returns
  // the same.
  //
  // Devices: the rank's compute stream is made to wait, not the host; what is queued on it
  // afterwards sees the outputs.
  absl::Status Wait() {
    waited_ = true;
    return state_ == nullptr ? absl::OkStatus() : state_->Wait();
  }

  // Whether Wait() would return at once. Never blocks.
  bool Done() const { return state_ == nullptr || state_->Done(); }

 private:
  void Drop() {
    if (state_ != nullptr && !waited_) state_->Drop();
    state_ = nullptr;
  }

  std::shared_ptr<WorkState> state_;
  bool waited_ = false;
};

// Waits for all of them, also after an error, and returns the first error.
inline absl::Status WaitAll(absl::Span<Work> works) {
  absl::Status first;
  for (Work& work : works) first.Update(work.Wait());
  return first;
}

}  // namespace lockstep
