#include "core/comm/conformance/test_memory.h"

#include <cstring>  // std::memcpy

namespace lockstep {

Tensor TestMemory::Empty(int64_t count, DType dtype) {
  return Tensor::Empty(allocator(), {count}, dtype, MemoryClass::kCommunication);
}

Tensor TestMemory::TensorOf(const Bytes& bytes, DType dtype) {
  Tensor tensor = Empty(static_cast<int64_t>(bytes.size()) / SizeOf(dtype), dtype);
  if (!bytes.empty()) Write(bytes, tensor);
  return tensor;
}

void HostMemory::Write(const Bytes& bytes, const Tensor& tensor) {
  std::memcpy(tensor.raw(), bytes.data(), bytes.size());
}

Bytes HostMemory::Read(const Tensor& tensor) {
  return tensor.bytes() == 0 ? Bytes() : Bytes(tensor.raw(), tensor.raw() + tensor.bytes());
}

}  // namespace lockstep
