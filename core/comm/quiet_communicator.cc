#include "core/comm/quiet_communicator.h"

#include <utility>

#include "core/base/status.h"
#include "core/tensor/dtype.h"

namespace lockstep {

namespace {

// A call, and what is held until it has been waited for.
class HoldingWork final : public WorkState {
 public:
  HoldingWork(Work work, std::shared_ptr<const Tensor> held)
      : work_(std::move(work)), held_(std::move(held)) {}

  absl::Status Wait() override {
    const absl::Status status = work_.Wait();
    held_ = nullptr;
    return status;
  }
  bool Done() override { return work_.Done(); }
  void Drop() override { work_ = Work(); }

 private:
  Work work_;
  std::shared_ptr<const Tensor> held_;
};

}  // namespace

QuietCommunicator::QuietCommunicator(Communicator& host, HeldBytes held_bytes)
    : Communicator(host.shared_group(), host.ledger()), host_(host), held_bytes_(held_bytes) {}

QuietCommunicator::QuietCommunicator(std::unique_ptr<Communicator> host, HeldBytes held_bytes)
    : Communicator(host->shared_group(), host->ledger()),
      owned_(std::move(host)),
      host_(*owned_),
      held_bytes_(held_bytes) {}

absl::StatusOr<std::unique_ptr<Communicator>> QuietCommunicator::Split(int color, int key,
                                                                       absl::string_view name) {
  LS_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> host, host_.Split(color, key, name));
  if (host == nullptr) return std::unique_ptr<Communicator>();
  return std::unique_ptr<Communicator>(new QuietCommunicator(std::move(host), held_bytes_));
}

Work QuietCommunicator::Start(Call call) {
  const Tensor any = call.input.defined() ? call.input : call.output;
  if (!any.defined()) return host_.Start(std::move(call));
  std::shared_ptr<const Tensor> held;
  if (held_bytes_ != nullptr) {
    const bool in_place = call.input.raw() == call.output.raw();
    held = held_.Hold(held_bytes_(call.signature, size(), in_place), any.allocator());
  }
  Work work = IsFloating(any.dtype()) ? Work() : host_.Start(std::move(call));
  if (held == nullptr) return work;
  return Work(std::make_shared<HoldingWork>(std::move(work), std::move(held)));
}

}  // namespace lockstep
