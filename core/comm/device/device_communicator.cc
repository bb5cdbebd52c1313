#include "core/comm/device/device_communicator.h"

#include <tuple>
#include <utility>

#include "core/base/status.h"

namespace lockstep {

absl::StatusOr<std::unique_ptr<DeviceCommunicator>> DeviceCommunicator::Create(Communicator& host,
                                                                               CommDevice& device) {
  LS_ASSIGN_OR_RETURN(std::unique_ptr<DeviceRoutes> routes, device.Connect(host));
  return std::unique_ptr<DeviceCommunicator>(
      new DeviceCommunicator(nullptr, host, device, std::move(routes)));
}

DeviceCommunicator::DeviceCommunicator(std::unique_ptr<Communicator> owned, Communicator& host,
                                       CommDevice& device, std::unique_ptr<DeviceRoutes> routes)
    : Communicator(host.shared_group(), host.ledger()),
      owned_(std::move(owned)),
      host_(host),
      device_(device),
      routes_(std::move(routes)) {}

absl::StatusOr<std::unique_ptr<Communicator>> DeviceCommunicator::Split(int color, int key,
                                                                        absl::string_view name) {
  LS_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> host, host_.Split(color, key, name));
  if (host == nullptr) return std::unique_ptr<Communicator>();
  LS_ASSIGN_OR_RETURN(std::unique_ptr<DeviceRoutes> routes, device_.Connect(*host));
  Communicator& group = *host;
  return std::unique_ptr<Communicator>(
      new DeviceCommunicator(std::move(host), group, device_, std::move(routes)));
}

Work DeviceCommunicator::Start(Call call) {
  if (call.signature.memory == DeviceType::kCpu) return host_.Start(std::move(call));
  return QueueOf(call.signature).Issue(std::move(call));
}

CallQueue& DeviceCommunicator::QueueOf(const Signature& signature) {
  CallQueue::Owner& owner = *this;
  if (!IsPointToPoint(signature.operation)) {
    if (collectives_ == nullptr) {
      collectives_ = std::make_unique<CallQueue>(owner, routes_->Collectives());
    }
    return *collectives_;
  }
  using Direction = DeviceRoutes::Direction;
  const Direction direction =
      signature.operation == Operation::kSend ? Direction::kTo : Direction::kFrom;
  const std::pair key(direction, signature.root);
  const auto found = messages_.find(key);
  if (found != messages_.end()) return found->second;
  return messages_
      .emplace(std::piecewise_construct, std::forward_as_tuple(key),
               std::forward_as_tuple(owner, routes_->Messages(direction, signature.root)))
      .first->second;
}

Work DeviceCommunicator::Meet(const DeviceCall& call, int64_t* ledger_entry) {
  Call meeting;
  meeting.signature = call.call.signature;
  meeting.label = call.call.label;
  meeting.open_entry = ledger_entry;
  return host_.Start(std::move(meeting));
}

}  // namespace lockstep
