// Memory of emulated GPUs and page-locked memory: allocations, pools and copies. What a call
// refuses is what its documentation refuses.

#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/cuda/emulation/handles.h"
#include "core/cuda/emulation/machine.h"
#include "core/cuda/emulation/memory.h"
#include "core/cuda/emulation/runtime.h"

namespace lockstep::emulation {
namespace {

cudaError_t Allocate(void** block, size_t bytes, const std::shared_ptr<MemoryPool>& pool,
                     cudaStream_t stream) {
  *block = nullptr;
  if (bytes == 0) return cudaSuccess;
  void* const reserved = Machine::Get().memory().Reserve(pool, bytes);
  if (reserved == nullptr) return Result(cudaErrorMemoryAllocation);
  *block = reserved;
  return QueueRuntime(stream, {.name = "cudaMallocAsync", .run = [reserved] {
                                 Machine::Get().memory().Begin(reserved);
                                 return std::nullopt;
                               }});
}

// One side of a copy: the GPU that it is on, or the host.
struct Side {
  const void* address;
  int device;  // -1: the host
  bool is_page_locked;

  Side(const void* at, size_t bytes)
      : address(at),
        device(Machine::Get().memory().DeviceOf(at)),
        is_page_locked(device < 0 && Machine::Get().memory().IsPageLocked(at, bytes)) {}
  bool IsPageable() const { return device < 0 && !is_page_locked; }
};

bool Agrees(cudaMemcpyKind kind, const Side& to, const Side& from) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return to.device < 0 && from.device < 0;
    case cudaMemcpyHostToDevice:
      return to.device >= 0 && from.device < 0;
    case cudaMemcpyDeviceToHost:
      return to.device < 0 && from.device >= 0;
    case cudaMemcpyDeviceToDevice:
      return to.device >= 0 && from.device >= 0;
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

// Copies rows of `width` bytes in the order of the stream, by the stream's GPU. For memory from
// cudaMallocAsync the calling thread's context has to be that of the stream (NVIDIA's programming
// guide, on the stream-ordered memory allocator).
cudaError_t Copy(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                 size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  if (width == 0 || height == 0) return cudaSuccess;
  if (to_pitch < width || from_pitch < width) {
    return Refuse(cudaErrorInvalidValue, "cudaMemcpy2DAsync: a pitch is less than the width");
  }
  const size_t to_bytes = (height - 1) * to_pitch + width;
  const size_t from_bytes = (height - 1) * from_pitch + width;
  const Side target(to, to_bytes), source(from, from_bytes);
  if (!Agrees(kind, target, source)) {
    return Refuse(cudaErrorInvalidValue,
                  "cudaMemcpyAsync: an address is not on the side that the kind says");
  }
  if (stream != nullptr && stream->stream->device != CurrentDevice()) {
    return Refuse(cudaErrorInvalidResourceHandle,
                  absl::StrCat("cudaMemcpyAsync: the stream is not one of GPU ", CurrentDevice(),
                               ", which is the calling thread's (cudaSetDevice)"));
  }
  const auto rows = [=](const std::byte* first) {
    for (size_t row = 0; row < height; ++row) {
      std::memmove(static_cast<std::byte*>(to) + row * to_pitch, first + row * from_pitch, width);
    }
  };
  // From pageable memory CUDA takes a copy before the call returns.
  std::shared_ptr<std::vector<std::byte>> staged;
  if (source.IsPageable()) {
    const auto* const begin = static_cast<const std::byte*>(from);
    staged = std::make_shared<std::vector<std::byte>>(begin, begin + from_bytes);
  }
  const int device = CurrentDevice();
  const cudaError_t error = QueueRuntime(
      stream,
      {.name = "cudaMemcpyAsync", .run = [=]() -> std::optional<Fault> {
         for (const auto& [side, bytes] : {std::pair(target, to_bytes), {source, from_bytes}}) {
           if (side.device < 0) continue;
           auto fault = JudgeAccess("cudaMemcpyAsync", device, "copies", side.address, bytes);
           if (fault.has_value()) return fault;
         }
         rows(staged != nullptr ? staged->data() : static_cast<const std::byte*>(from));
         return std::nullopt;
       }});
  // To pageable memory it returns when all is there.
  if (error == cudaSuccess && target.IsPageable()) return cudaStreamSynchronize(stream);
  return error;
}

}  // namespace

std::optional<Fault> JudgeAccess(const std::string& name, int device, const char* what,
                                 const void* address, size_t bytes) {
  const std::string problem = Machine::Get().memory().Judge(device, address, bytes);
  if (problem.empty()) return std::nullopt;
  return Fault{cudaErrorIllegalAddress,
               absl::StrCat("GPU ", device, ": ", name, " ", what, " ", bytes, " bytes ", problem)};
}

}  // namespace lockstep::emulation

using lockstep::emulation::Allocate;
using lockstep::emulation::Copy;
using lockstep::emulation::CurrentDevice;
using lockstep::emulation::DeviceError;
using lockstep::emulation::Fault;
using lockstep::emulation::JudgeAccess;
using lockstep::emulation::Machine;
using lockstep::emulation::Memory;
using lockstep::emulation::MemoryPool;
using lockstep::emulation::QueueRuntime;
using lockstep::emulation::Refuse;
using lockstep::emulation::Result;
using lockstep::emulation::Side;

cudaError_t cudaMallocHost(void** host, size_t bytes) {
  LS_RETURN_IF_DEVICE_FAILED();
  *host = Machine::Get().memory().PageLock(bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* host) {
  // "May implicitly synchronize", and what a GPU still reads must stay.
  Machine::Get().AwaitDevice(CurrentDevice());
  if (!Machine::Get().memory().Unlock(host)) return Result(cudaErrorInvalidValue);
  return DeviceError();
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = static_cast<size_t>(Machine::Get().memory().free_bytes(CurrentDevice()));
  *total = static_cast<size_t>(Memory::kBytesOfDevice);
  return DeviceError();
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  const bool is_device = properties->allocType == cudaMemAllocationTypePinned &&
                         properties->location.type == cudaMemLocationTypeDevice;
  if (!is_device || properties->location.id >= Machine::Get().devices()) {
    return Refuse(cudaErrorInvalidValue, "cudaMemPoolCreate: no memory of a GPU");
  }
  *pool =
      new CUmemPoolHandle_st{std::make_shared<MemoryPool>(MemoryPool{properties->location.id, {}})};
  return DeviceError();
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  delete pool;
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return DeviceError(); }

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* accesses,
                                 size_t count) {
  const int owner = pool->pool->device;
  for (size_t i = 0; i < count; ++i) {
    const auto& [location, flags] = accesses[i];
    const bool is_device = location.type == cudaMemLocationTypeDevice && location.id >= 0 &&
                           location.id < Machine::Get().devices();
    if (!is_device || flags == cudaMemAccessFlagsProtRead) {
      return Refuse(cudaErrorInvalidValue,
                    "cudaMemPoolSetAccess: a GPU has all access to a pool or none");
    }
    if (location.id == owner && flags == cudaMemAccessFlagsProtNone) {
      return Refuse(cudaErrorInvalidValue, "cudaMemPoolSetAccess: a GPU keeps its own memory");
    }
    if (location.id != owner && !Machine::Get().ArePeers(location.id, owner)) {
      return Refuse(cudaErrorInvalidDevice, absl::StrCat("cudaMemPoolSetAccess: GPU ", location.id,
                                                         " cannot reach memory of GPU ", owner));
    }
  }
  for (size_t i = 0; i < count; ++i) {
    Machine::Get().memory().SetAccess(*pool->pool, accesses[i].location.id,
                                      accesses[i].flags == cudaMemAccessFlagsProtReadWrite);
  }
  return DeviceError();
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return DeviceError(); }

cudaError_t cudaMallocAsync(void** block, size_t bytes, cudaStream_t stream) {
  LS_RETURN_IF_DEVICE_FAILED();
  return Allocate(block, bytes, Machine::Get().memory().DefaultPool(stream->stream->device),
                  stream);
}

cudaError_t cudaMallocFromPoolAsync(void** block, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  LS_RETURN_IF_DEVICE_FAILED();
  if (pool->pool->device != stream->stream->device) {
    return Refuse(cudaErrorInvalidValue, "cudaMallocFromPoolAsync: the stream is of another GPU");
  }
  return Allocate(block, bytes, pool->pool, stream);
}

cudaError_t cudaFreeAsync(void* block, cudaStream_t stream) {
  if (block == nullptr) return DeviceError();
  if (Machine::Get().memory().BytesOf(block) < 0) {
    return Refuse(cudaErrorInvalidValue, "cudaFreeAsync: no block of a GPU's memory, or freed");
  }
  return QueueRuntime(stream,
                      {.name = "cudaFreeAsync", .run = [=]() -> std::optional<Fault> {
                         if (Machine::Get().memory().End(block)) return std::nullopt;
                         return Fault{cudaErrorInvalidValue, "cudaFreeAsync frees a block twice"};
                       }});
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  LS_RETURN_IF_DEVICE_FAILED();
  return Copy(to, bytes, from, bytes, bytes, 1, kind, stream);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                size_t bytes, cudaStream_t stream) {
  LS_RETURN_IF_DEVICE_FAILED();
  if (bytes == 0) return cudaSuccess;
  const std::pair<const void*, int> sides[] = {{to, to_device}, {from, from_device}};
  for (const auto& [address, device] : sides) {
    if (Machine::Get().memory().DeviceOf(address) == device) continue;
    return Refuse(cudaErrorInvalidValue,
                  absl::StrCat("cudaMemcpyPeerAsync: an address that is not of GPU ", device));
  }
  // Each GPU has its own side, and the driver brings the bytes from one to the other.
  return QueueRuntime(stream, {.name = "cudaMemcpyPeerAsync", .run = [=]() -> std::optional<Fault> {
                                 for (const auto& [address, device] : sides) {
                                   auto fault = JudgeAccess("cudaMemcpyPeerAsync", device, "copies",
                                                            address, bytes);
                                   if (fault.has_value()) return fault;
                                 }
                                 std::memmove(to, from, bytes);
                                 return std::nullopt;
                               }});
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  const Side side(address, 1);
  *attributes = {.type = side.device >= 0      ? cudaMemoryTypeDevice
                         : side.is_page_locked ? cudaMemoryTypeHost
                                               : cudaMemoryTypeUnregistered,
                 .device = side.device};
  return DeviceError();
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  LS_RETURN_IF_DEVICE_FAILED();
  return Copy(to, to_pitch, from, from_pitch, width, height, kind, stream);
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  LS_RETURN_IF_DEVICE_FAILED();
  if (bytes == 0) return cudaSuccess;
  const int device = stream->stream->device;
  return QueueRuntime(stream, {.name = "cudaMemsetAsync", .run = [=]() -> std::optional<Fault> {
                                 auto fault =
                                     JudgeAccess("cudaMemsetAsync", device, "writes", to, bytes);
                                 if (!fault.has_value()) std::memset(to, value, bytes);
                                 return fault;
                               }});
}
