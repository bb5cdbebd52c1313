#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "core/comm/device/comm_device.h"
#include "core/comm/held_memory.h"
#include "core/comm/ledger.h"
#include "core/comm/work.h"

namespace lockstep {

// A queue of calls of one carrier, one after the other, and the thread that takes them along: it
// waits until all members have made a call, on the host, and has the data moved, on the device. A
// thread for each queue, because a member that is late in one must hold up no other.
class CallQueue {
 public:
  // What a queue needs of the communicator that it belongs to, which outlives it.
  class Owner {
   public:
    virtual ~Owner() = default;
    // Makes the call for the host's group, without its data.
    virtual Work Meet(const DeviceCall& call, int64_t* ledger_entry) = 0;
    virtual CommDevice& device() = 0;
    virtual Ledger& book() = 0;
    // This rank has failed; or goes away amid a call.
    virtual void Fail(const absl::Status& cause) = 0;
    virtual void Abandon(const std::string& call) = 0;
    virtual absl::Status WorldStatus() = 0;
  };

  CallQueue(Owner& owner, std::unique_ptr<DeviceCarrier> carrier);
  // All works have been waited for or dropped.
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // In the rank's thread.
  Work Issue(Call call);

 private:
  class InFlight;

  void Run();
  void Carry(InFlight& call);
  // The call has failed.
  void GiveUp(InFlight& call);

  Owner& owner_;
  const std::unique_ptr<DeviceCarrier> carrier_;
  int64_t next_number_ = 0;
  HeldMemory held_;

  std::mutex mutex_;  // guards what follows, and what InFlight says it guards
  std::condition_variable changed_;
  std::deque<std::shared_ptr<InFlight>> calls_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace lockstep
