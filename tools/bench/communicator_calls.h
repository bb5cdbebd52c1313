#pragma once

#include "core/comm/communicator.h"
#include "tools/bench/call_timing.h"

namespace lockstep {

// Calls of Lockstep's own communicators, whatever their backend: each is waited for at once.
class CommunicatorCalls : public RankCalls {
 public:
  // The communicator outlives this.
  explicit CommunicatorCalls(Communicator& comm);

  int rank() const override { return comm_.rank(); }
  absl::Status Run(const TimedCall& call, const CallTensors& tensors) override;
  absl::Status Barrier() override;
  absl::StatusOr<double> Max(double value) override;

 private:
  Communicator& comm_;
  CpuAllocator allocator_;
  const Tensor value_;  // f64[1], in place
};

}  // namespace lockstep
