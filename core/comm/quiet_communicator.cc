#include "core/comm/quiet_communicator.h"

#include <cstdint>
#include <utility>

#include "core/base/status.h"
#include "core/tensor/dtype.h"

namespace lockstep {

namespace {

// A call, what is held until it has been waited for, and who hears of that.
class QuietWork final : public WorkState {
 public:
  QuietWork(Work work, std::shared_ptr<const Tensor> held, CallObserver* observer, int64_t call)
      : work_(std::move(work)), held_(std::move(held)), observer_(observer), call_(call) {}

  absl::Status Wait() override {
    if (observer_ != nullptr) observer_->OnWait(call_);
    observer_ = nullptr;
    const absl::Status status = work_.Wait();
    held_ = nullptr;
    return status;
  }
  bool Done() override { return work_.Done(); }
  void Drop() override { work_ = Work(); }

 private:
  Work work_;
  std::shared_ptr<const Tensor> held_;
  CallObserver* observer_;
  const int64_t call_;
};

}  // namespace

QuietCommunicator::QuietCommunicator(Communicator& host, const Options& options)
    : Communicator(host.shared_group(), host.ledger()), host_(host), options_(options) {}

QuietCommunicator::QuietCommunicator(std::unique_ptr<Communicator> host, const Options& options)
    : Communicator(host->shared_group(), host->ledger()),
      owned_(std::move(host)),
      host_(*owned_),
      options_(options) {}

absl::StatusOr<std::unique_ptr<Communicator>> QuietCommunicator::OnTopOf(
    absl::StatusOr<std::unique_ptr<Communicator>> host) const {
  if (!host.ok() || *host == nullptr) return host;
  return std::unique_ptr<Communicator>(new QuietCommunicator(*std::move(host), options_));
}

absl::StatusOr<std::unique_ptr<Communicator>> QuietCommunicator::Split(int color, int key,
                                                                       absl::string_view name) {
  return OnTopOf(host_.Split(color, key, name));
}

absl::StatusOr<std::unique_ptr<Communicator>> QuietCommunicator::SplitBy(
    absl::FunctionRef<Choice(int rank)> choice_of, absl::string_view name) {
  return OnTopOf(host_.SplitBy(choice_of, name));
}

Work QuietCommunicator::Start(Call call) {
  const Tensor any = call.input.defined() ? call.input : call.output;
  if (!any.defined()) return host_.Start(std::move(call));
  std::shared_ptr<const Tensor> held;
  if (options_.held_bytes != nullptr) {
    const bool in_place = call.input.raw() == call.output.raw();
    held = held_.Hold(options_.held_bytes(call.signature, size(), in_place), any.allocator());
  }
  CallObserver* const observer = options_.observer;
  const int64_t number =
      observer == nullptr ? 0 : observer->OnCall(shared_group(), call.signature, call.label);
  Work work = IsFloating(any.dtype()) ? Work() : host_.Start(std::move(call));
  if (held == nullptr && observer == nullptr) return work;
  return Work(std::make_shared<QuietWork>(std::move(work), std::move(held), observer, number));
}

}  // namespace lockstep
