#include "core/comm/quiet_communicator.h"

#include <utility>

#include "core/base/status.h"
#include "core/tensor/dtype.h"

namespace lockstep {

QuietCommunicator::QuietCommunicator(Communicator& host)
    : Communicator(host.shared_group(), host.ledger()), host_(host) {}

QuietCommunicator::QuietCommunicator(std::unique_ptr<Communicator> host)
    : Communicator(host->shared_group(), host->ledger()), owned_(std::move(host)), host_(*owned_) {}

absl::StatusOr<std::unique_ptr<Communicator>> QuietCommunicator::Split(int color, int key,
                                                                       absl::string_view name) {
  LS_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> host, host_.Split(color, key, name));
  if (host == nullptr) return std::unique_ptr<Communicator>();
  return std::unique_ptr<Communicator>(new QuietCommunicator(std::move(host)));
}

Work QuietCommunicator::Start(Call call) {
  const bool moves = call.input.defined() || call.output.defined();
  if (moves && IsFloating(call.signature.dtype)) return Work();
  return host_.Start(std::move(call));
}

}  // namespace lockstep
