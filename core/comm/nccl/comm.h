#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nccl.h"

namespace lockstep::nccl {

// How long NCCL is waited for, on the host.
struct Patience {
  std::chrono::nanoseconds timeout;
  // OK, or why the world has failed, which ends all waits.
  std::function<absl::Status()> world_status;
};

// NCCL's communicator of one member: an ncclComm_t that never blocks in NCCL, so that waits end
// when the world fails or the timeout has passed. Thread-safe.
//
// NCCL starts a thread for each call of a communicator that does not block. One that blocks would
// need none, but could not be aborted while a call waits for a peer that is gone (the first call
// between two members connects them): NCCL allows one thread at a time to use a communicator
// ("NCCL User Guide", "Thread Safety").
class Comm {
 public:
  // A new group's name, which one member makes and tells the others.
  static absl::StatusOr<ncclUniqueId> NewId();

  // Called by all members, for the calling thread's GPU. Waits for all of them. Its kernels have at
  // most so many blocks.
  static absl::StatusOr<std::shared_ptr<Comm>> Create(const ncclUniqueId& id, int size, int rank,
                                                      int most_ctas, Patience patience);
  // Aborts what is under way if the world has failed; else waits for it.
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  // Calls `queue`, which makes NCCL's calls for its argument, and returns when what they do is in
  // the order of their stream. Throws StatusException.
  void Queue(const std::function<ncclResult_t(ncclComm_t)>& queue);

  // OK, or an error of NCCL's that has come up since. Never blocks.
  absl::Status Check();
  // Ends what is under way on the GPU; later calls fail. Without effect while another thread is
  // amid a call, which ends by itself.
  void Abort();

 private:
  using Lock = std::unique_lock<std::mutex>;

  explicit Comm(Patience patience) : patience_(std::move(patience)) {}
  // Waits until NCCL has done in the background what it was told; `call` is that, for messages.
  absl::Status AwaitBackground(const char* call);
  absl::Status StatusOf(ncclResult_t result, const char* call) const;
  void AbortLocked();

  const Patience patience_;
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;  // null once aborted
};

}  // namespace lockstep::nccl
