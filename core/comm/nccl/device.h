#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "core/comm/cuda/gpu_device.h"
#include "core/comm/device/shared_device.h"
#include "core/comm/nccl/watch.h"
#include "core/comm/nccl_reductions.h"

namespace lockstep {

// A rank's GPU that no other rank has: NCCL moves the data. The names of its communicators travel
// through the host's. All members of a group make its communicator when they connect, in the order
// in which the program makes groups, so that no rank waits for one that makes another first.
//
// Messages need no communicator where all ranks are threads of one process: the receiver copies
// from GPU to GPU. Between processes two members' messages have a communicator for each direction:
// NCCL would do one after the other, whoever waits for whom. ConnectRoutes makes those; others are
// made by the first message, which may hang where a kernel of NCCL waits for that message's
// receiver.
class NcclGpu final : public GpuDevice {
 public:
  // `timeout` is how long a rank waits for others. `world` is the host's, and outlives the device.
  // `boards`: shared by all ranks, where these are threads of this process; else null.
  NcclGpu(CudaContext& context, std::chrono::nanoseconds timeout, NcclReductions reductions,
          Communicator& world, std::shared_ptr<RoundBoards> boards = nullptr);

  absl::StatusOr<std::unique_ptr<DeviceRoutes>> Connect(Communicator& group) override;

 private:
  const nccl::Patience patience_;
  const NcclReductions reductions_;
  nccl::Watch watch_;
  std::optional<SharedDeviceConnector> threads_;
};

}  // namespace lockstep
