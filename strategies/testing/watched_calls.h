#pragma once

#include <memory>

#include "core/run/device/rank_device.h"
#include "core/tensor/tensor.h"

namespace lockstep {

// Told of the communicator calls of all ranks of a run, those with other ranks alone. Each member
// function runs on the thread of the rank that it names (in the world).
class CallWatcher {
 public:
  virtual ~CallWatcher() = default;
  // The rank is about to give these floating-point numbers to a call.
  virtual void Sends(int /*rank*/, const Tensor& /*tensor*/) {}
  // The rank has begun a call, which may not be over yet. What this throws ends the rank amid the
  // call.
  virtual void Began(int /*rank*/) {}
  // A call has brought these floating-point numbers.
  virtual void Received(int /*rank*/, const Tensor& /*tensor*/) {}
};

// The same devices, whose ranks' communicators tell `watcher` what passes by.
std::shared_ptr<RankDevices> WithWatchedCalls(std::shared_ptr<RankDevices> devices,
                                              std::shared_ptr<CallWatcher> watcher);

}  // namespace lockstep
