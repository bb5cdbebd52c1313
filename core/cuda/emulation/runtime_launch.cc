// Launches of kernels on emulated GPUs. What a launch is refused for is what NVIDIA's documentation
// refuses it for.

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/cuda/emulation/block.h"
#include "core/cuda/emulation/handles.h"
#include "core/cuda/emulation/launch.h"
#include "core/cuda/emulation/machine.h"
#include "core/cuda/emulation/runtime.h"
#include "core/cuda/emulation/shared_memory.h"

namespace lockstep::emulation {
namespace {

// The bytes of dynamic shared memory that kernels may have, by kernel and GPU.
class SharedLimits {
 public:
  void Set(const void* kernel, int device, int64_t bytes) {
    std::lock_guard lock(mutex_);
    bytes_[{kernel, device}] = bytes;
  }
  int64_t Of(const void* kernel, int device) const {
    std::lock_guard lock(mutex_);
    const auto found = bytes_.find({kernel, device});
    return found == bytes_.end() ? kUsualSharedBytes : found->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<const void*, int>, int64_t> bytes_;
};

SharedLimits& TheSharedLimits() {
  static SharedLimits& limits = *new SharedLimits;
  return limits;
}

bool IsGridValid(const Shape::Extents& grid) {
  constexpr int64_t kMostAcross = 0x7fffffff, kMostElse = 65535;
  return grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= kMostAcross && grid.y <= kMostElse &&
         grid.z <= kMostElse;
}

bool IsBlockValid(const Shape::Extents& block) {
  constexpr int64_t kMostThreads = 1024, kMostDeep = 64;
  return block.x > 0 && block.y > 0 && block.z > 0 && block.z <= kMostDeep &&
         block.count() <= kMostThreads;
}

std::string Extents(const Shape::Extents& extents) {
  return absl::StrCat("(", extents.x, ", ", extents.y, ", ", extents.z, ")");
}

// The checks of a launch that need no GPU.
cudaError_t JudgeLaunch(const KernelLaunch& launch) {
  constexpr size_t kMostArgumentBytes = 32764;
  const Shape& shape = launch.shape;
  const int64_t limit = TheSharedLimits().Of(launch.address, CurrentDevice());
  if (!IsGridValid(shape.grid)) {
    return Refuse(cudaErrorInvalidConfiguration,
                  absl::StrCat(launch.name, ": a grid of ", Extents(shape.grid), " blocks"));
  }
  if (!IsBlockValid(shape.block)) {
    return Refuse(cudaErrorInvalidConfiguration,
                  absl::StrCat(launch.name, ": blocks of ", Extents(shape.block), " threads"));
  }
  if (shape.shared_bytes < 0 || shape.shared_bytes > limit) {
    return Refuse(cudaErrorInvalidValue, absl::StrCat(launch.name, ": ", shape.shared_bytes,
                                                      " bytes of shared memory, more than the ",
                                                      limit, " that the kernel is allowed"));
  }
  if (launch.argument_bytes > kMostArgumentBytes) {
    return Refuse(cudaErrorInvalidValue,
                  absl::StrCat(launch.name, ": arguments of ", launch.argument_bytes, " bytes"));
  }
  if (shape.stream == nullptr || shape.stream->stream->device != CurrentDevice()) {
    return Refuse(cudaErrorInvalidResourceHandle,
                  absl::StrCat(launch.name, ": the stream is not one of GPU ", CurrentDevice(),
                               ", which is the calling thread's (cudaSetDevice)"));
  }
  return cudaSuccess;
}

}  // namespace

void QueueKernel(KernelLaunch launch) {
  if (DeviceError() != cudaSuccess || JudgeLaunch(launch) != cudaSuccess) return;
  const cudaStream_t stream = launch.shape.stream;
  const uint64_t seed = Machine::Get().Random();
  QueueOn(stream, {.name = launch.name,
                   .run = [launch = std::move(launch), device = CurrentDevice(), seed] {
                     return RunKernel(launch, device, Machine::Get().memory(), seed);
                   }});
}

}  // namespace lockstep::emulation

using lockstep::emulation::CurrentDevice;
using lockstep::emulation::Refuse;
using lockstep::emulation::SharedBytesOfBlock;
using lockstep::emulation::TheSharedLimits;

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  LS_RETURN_IF_DEVICE_FAILED();
  if (value < 0 || value > SharedBytesOfBlock()) {
    return Refuse(cudaErrorInvalidValue,
                  absl::StrCat("cudaFuncSetAttribute: ", value, " bytes of shared memory"));
  }
  TheSharedLimits().Set(kernel, CurrentDevice(), value);
  return cudaSuccess;
}
