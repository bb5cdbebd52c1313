#include "core/comm/cuda/gpu_memory.h"

namespace lockstep {

void GpuMemory::Write(const Bytes& bytes, const Tensor& tensor) {
  context_.MakeCurrent();
  staging_.ToDevice(bytes.data(), tensor.raw(), tensor.bytes());
}

Bytes GpuMemory::Read(const Tensor& tensor) {
  Bytes bytes(static_cast<size_t>(tensor.bytes()));
  context_.MakeCurrent();
  if (!bytes.empty()) staging_.ToHost(tensor.raw(), bytes.data(), tensor.bytes());
  return bytes;
}

}  // namespace lockstep
