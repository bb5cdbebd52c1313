// Made-up devices that do not share a memory: what one has for another goes through the mail.

#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "core/comm/device/exact_reduction.h"
#include "core/comm/device/testing/made_up_device.h"

namespace lockstep {

// What is on its way between the members of all groups of a world.
class Mail {
 public:
  using Route = std::pair<std::pair<std::string, int>, std::pair<int, int>>;  // group; from, to

  void Post(const Route& route, Bytes bytes);
  // Waits for the next message.
  Bytes Take(const Route& route);

 private:
  std::mutex mutex_;
  std::condition_variable posted_;
  std::map<Route, std::deque<Bytes>> messages_;
};

// A device whose collectives go by mail, reductions as QueueExactReduction says, on nodes of so
// many ranks. Messages of ranks go as on a shared device.
class MadeUpPeerDevice final : public CommDevice {
 public:
  MadeUpPeerDevice(std::shared_ptr<RoundBoards> boards, std::shared_ptr<Mail> mail,
                   int ranks_a_node)
      : mail_(std::move(mail)), ranks_a_node_(ranks_a_node), connector_(std::move(boards)) {}

  MadeUpStream& computes() { return computes_; }

  DeviceMarkPtr Computed() override { return computes_.Mark(); }
  void ComputeAwaits(const DeviceMark& mark) override { computes_.Await(mark); }
  absl::StatusOr<std::unique_ptr<DeviceRoutes>> Connect(Communicator& group) override;

 private:
  const std::shared_ptr<Mail> mail_;
  const int ranks_a_node_;
  MadeUpStream computes_;
  SharedDeviceConnector connector_;
  std::map<std::string, int> groups_;  // so far, by name and members
};

}  // namespace lockstep
