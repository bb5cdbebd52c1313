#pragma once

#include <memory>
#include <utility>

#include "core/comm/device/comm_device.h"
#include "core/comm/device/shared_device.h"
#include "core/cuda/context.h"

namespace lockstep {

// A rank's GPU, as its communicators see it.
class GpuDevice : public CommDevice {
 public:
  // The context outlives the device.
  explicit GpuDevice(CudaContext& context) : context_(context) {}

  DeviceMarkPtr Computed() final;
  void ComputeAwaits(const DeviceMark& mark) final;

 protected:
  // Makes communication streams of the GPU.
  DeviceStreamFactory StreamFactory() const;
  CudaContext& context() const { return context_; }

 private:
  CudaContext& context_;
};

// One that the rank shares with others, which are threads of the same process.
class SharedGpu final : public GpuDevice {
 public:
  // `boards` is that of all ranks on the GPU.
  SharedGpu(CudaContext& context, std::shared_ptr<RoundBoards> boards)
      : GpuDevice(context), connector_(std::move(boards)) {}

  absl::StatusOr<std::unique_ptr<DeviceRoutes>> Connect(Communicator& group) override;

 private:
  SharedDeviceConnector connector_;
};

}  // namespace lockstep
