#pragma once

#include <memory>

#include "core/comm/collective_task.h"

namespace lockstep {

// A place in the order of a device's work: all that was queued there before.
class DeviceMark : public std::enable_shared_from_this<DeviceMark> {
 public:
  virtual ~DeviceMark() = default;
};
using DeviceMarkPtr = std::shared_ptr<const DeviceMark>;

// An order of work on a rank's device beside the one in which the rank computes: what is queued
// here is done one after the other, and waits for others' work only where it says so. Nothing here
// waits on the host. Functions throw StatusException where the device reports an error; one thread
// at a time.
class DeviceStream : public Mover {
 public:
  // What is queued here from now on waits for the mark.
  virtual void Await(const DeviceMark& mark) = 0;
  // The place that has been reached here.
  virtual DeviceMarkPtr Mark() = 0;
};

}  // namespace lockstep
