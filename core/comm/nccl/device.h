#pragma once

#include <memory>

#include "core/comm/cuda/gpu_device.h"
#include "core/comm/nccl/watch.h"
#include "core/comm/nccl_reductions.h"

namespace lockstep {

// A rank's GPU that no other rank has: NCCL moves the data. The names of its communicators travel
// through the host's, so ranks may be threads or processes. Two members' messages have a
// communicator of their own for each direction: NCCL would do one after the other, whoever waits
// for whom.
class NcclGpu final : public GpuDevice {
 public:
  // `timeout` is how long a rank waits for others. `world` is the host's, and outlives the device.
  NcclGpu(CudaContext& context, std::chrono::nanoseconds timeout, NcclReductions reductions,
          Communicator& world);

  absl::StatusOr<std::unique_ptr<DeviceRoutes>> Connect(Communicator& group) override;

 private:
  const nccl::Patience patience_;
  const NcclReductions reductions_;
  nccl::Watch watch_;
};

}  // namespace lockstep
