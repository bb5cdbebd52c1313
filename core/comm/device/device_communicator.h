#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/comm/communicator.h"
#include "core/comm/device/call_queue.h"
#include "core/comm/device/comm_device.h"

namespace lockstep {

// A group of ranks that compute on devices. It stands on the host's communicator of the same ranks
// (threads or MPI), which takes every call: what is in host memory it carries out; of what is in
// devices' memory it finds out whether all members have made the same call, with the same errors
// and timeouts, and the device's carriers move the data then. The host waits for other ranks'
// calls, never for a device.
//
// In the ledger a call on devices ends when it has been queued there.
class DeviceCommunicator final : public Communicator, private CallQueue::Owner {
 public:
  // Called by all members of `host`, which, like the device, outlives the communicator and its
  // sub-groups. Blocks.
  static absl::StatusOr<std::unique_ptr<DeviceCommunicator>> Create(Communicator& host,
                                                                    CommDevice& device);

  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key,
                                                      absl::string_view name) override;
  absl::Status ConnectRoutes(absl::Span<const Route> routes) override {
    return routes_->Connect(routes);
  }
  void Abort(const absl::Status& cause) override { host_.Abort(cause); }
  absl::Status status() const override { return host_.status(); }

 private:
  // `owned` is the host's communicator, where nobody else keeps it.
  DeviceCommunicator(std::unique_ptr<Communicator> owned, Communicator& host, CommDevice& device,
                     std::unique_ptr<DeviceRoutes> routes);

  Work Start(Call call) override;
  void GiveUp(absl::string_view call) override { host_.GiveUp(call); }
  CallQueue& QueueOf(const Signature& signature);

  Work Meet(const DeviceCall& call, int64_t* ledger_entry) override;
  CommDevice& device() override { return device_; }
  Ledger& book() override { return ledger(); }
  void Fail(const absl::Status& cause) override { host_.Abort(cause); }
  void Abandon(const std::string& call) override { host_.GiveUp(call); }
  absl::Status WorldStatus() override { return host_.status(); }

  const std::unique_ptr<Communicator> owned_;
  Communicator& host_;
  CommDevice& device_;
  const std::unique_ptr<DeviceRoutes> routes_;
  std::unique_ptr<CallQueue> collectives_;
  std::map<std::pair<DeviceRoutes::Direction, int>, CallQueue> messages_;
};

}  // namespace lockstep
