#pragma once

#include "core/comm/call.h"
#include "core/comm/cuda/gpu_stream.h"
#include "core/comm/device/exact_reduction.h"
#include "core/comm/nccl/comm.h"

namespace lockstep::nccl {

// Queues the collective on the stream, as member `rank` of `size`. Throws StatusException.
void QueueCollective(Comm& comm, const Call& call, int size, int rank, cuda::GpuStream& stream);

// Exchanges a group's messages over a communicator, on a stream. Both outlive it.
class Peers final : public DevicePeers {
 public:
  Peers(Comm& comm, cuda::GpuStream& stream) : comm_(comm), stream_(stream) {}
  void Exchange(absl::Span<const PeerMessage> messages) override;

 private:
  Comm& comm_;
  cuda::GpuStream& stream_;
};

// Queues this side of a message over a communicator of the two: member 0 sends, 1 receives.
void QueueMessage(Comm& comm, const Call& call, cuda::GpuStream& stream);

}  // namespace lockstep::nccl
