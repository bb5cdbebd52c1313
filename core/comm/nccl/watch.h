#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "core/comm/cuda/gpu_stream.h"
#include "core/comm/nccl/comm.h"

namespace lockstep::nccl {

// What a rank has under way with NCCL on its GPU, and a thread that watches it: nothing on the host
// waits for a GPU, so nobody else would see that NCCL reports an error, or that a peer is gone and
// a kernel waits for ever. All of it is aborted then, which lets the GPU go on.
class Watch {
 public:
  // Tells the world that this rank has failed.
  using Fail = std::function<void(const absl::Status&)>;

  // Watches the work of GPU `ordinal`.
  Watch(int ordinal, Patience patience) : ordinal_(ordinal), patience_(std::move(patience)) {}
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Work of `comm` that ends at the mark; `call` says what it is.
  void Add(std::shared_ptr<Comm> comm, DeviceMarkPtr end, std::string call, Fail fail);

 private:
  struct UnderWay {
    std::shared_ptr<Comm> comm;
    DeviceMarkPtr end;
    std::string call;
    Fail fail;
    std::chrono::steady_clock::time_point deadline;
  };

  void Run();
  // Lets go of what is over; OK, or why the rest is to be aborted.
  absl::Status Look();

  const int ordinal_;
  const Patience patience_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::list<UnderWay> under_way_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace lockstep::nccl
