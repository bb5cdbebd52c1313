#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/comm/call.h"
#include "core/comm/communicator.h"
#include "core/comm/device/device_stream.h"

namespace lockstep {

// A call of one rank, for tensors of its device.
struct DeviceCall {
  Call call;
  int64_t number = 0;   // among those of its carrier, from 0; the same for all members
  DeviceMarkPtr ready;  // where the rank's computation stood when it made the call
  // The device's memory that the carrier holds for the call beside its tensors; null: none.
  std::shared_ptr<const Tensor> held = nullptr;
};

// Moves the data of calls, for one of those that make them: of a group's collectives, or of the
// messages from one member to another. Members make the same calls in the same order, and the
// host's communicator sees to that: a carrier hears which calls have been made by all.
class DeviceCarrier {
 public:
  virtual ~DeviceCarrier() = default;

  // Bytes of the device's memory that the rank needs for a call beside its tensors. Calls that are
  // in flight together have the same memory: they move one after the other.
  virtual int64_t HeldBytes(const Signature& /*signature*/) const { return 0; }

  // The rank makes the call. In its thread, before anybody can know of the call.
  virtual void Begin(const DeviceCall& call) = 0;

  // All members have made the call: queues the movement. Returns the place behind which inputs are
  // free and outputs filled; null if the world has failed meanwhile. Throws StatusException where
  // the device reports an error. In one thread, call after call, as is GiveUp.
  virtual DeviceMarkPtr Move(const DeviceCall& call) = 0;

  // The call has failed: before Move, or in it, which has thrown or returned null and may have
  // queued a part. Returns when nobody is about to queue anything for it: the place behind which
  // nobody touches this member's tensors; null if nobody ever did. Throws as Move does.
  virtual DeviceMarkPtr GiveUp(const DeviceCall& call) = 0;
};

// How the members of one group reach each other's memory, as one of them sees it. The carriers that
// it makes are this member's.
class DeviceRoutes {
 public:
  virtual ~DeviceRoutes() = default;
  // As Communicator::ConnectRoutes.
  virtual absl::Status Connect(absl::Span<const Communicator::Route> /*routes*/) {
    return absl::OkStatus();
  }

  virtual std::unique_ptr<DeviceCarrier> Collectives() = 0;
  enum class Direction { kTo, kFrom };
  virtual std::unique_ptr<DeviceCarrier> Messages(Direction direction, int member) = 0;
};

// A rank's device, as its communicators see it.
class CommDevice {
 public:
  virtual ~CommDevice() = default;

  // The place that the rank's computation has been queued up to; and makes what it queues from now
  // on wait for a mark. In the rank's threads; throw StatusException.
  virtual DeviceMarkPtr Computed() = 0;
  virtual void ComputeAwaits(const DeviceMark& mark) = 0;

  // Connects the members of a group, each of whom calls this once, in the order in which the group
  // was made. `group` is the host's, and outlives the routes. Blocks.
  virtual absl::StatusOr<std::unique_ptr<DeviceRoutes>> Connect(Communicator& group) = 0;
};

}  // namespace lockstep
