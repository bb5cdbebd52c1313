#include "core/comm/cuda/gpu_device.h"

#include "absl/status/status.h"
#include "core/base/status.h"
#include "core/comm/cuda/gpu_stream.h"
#include "core/comm/cuda/movement_kernels.h"

namespace lockstep {

DeviceMarkPtr GpuDevice::Computed() {
  context_.MakeCurrent();
  return std::make_shared<const cuda::GpuMark>(context_.stream());
}

void GpuDevice::ComputeAwaits(const DeviceMark& mark) {
  context_.MakeCurrent();
  static_cast<const cuda::GpuMark&>(mark).HoldBack(context_.stream());
}

DeviceStreamFactory GpuDevice::StreamFactory() const {
  return [ordinal = context_.ordinal()] { return std::make_unique<cuda::GpuStream>(ordinal); };
}

absl::StatusOr<std::unique_ptr<DeviceRoutes>> SharedGpu::Connect(Communicator& group) {
  if (group.size() > cuda::kMostMembers) {
    return InvalidArgument("at most ", cuda::kMostMembers, " ranks can share a GPU, and ",
                           group.group().ToString(), " has ", group.size());
  }
  return connector_.Connect(group.group(), StreamFactory());
}

}  // namespace lockstep
