// CUDA's runtime on emulated GPUs. What a call refuses is what its documentation refuses, the
// programming guide's "Stream and Event Behavior" included.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/cuda/emulation/block.h"
#include "core/cuda/emulation/handles.h"
#include "core/cuda/emulation/machine.h"
#include "glog/logging.h"

namespace lockstep::emulation {
namespace {

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

Machine& TheMachine() { return Machine::Get(); }

cudaError_t Result(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// What the calling thread's GPU has failed with.
cudaError_t DeviceError() {
  if (TheMachine().devices() == 0) return Result(cudaErrorNoDevice);
  return Result(TheMachine().error(current_device));
}

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

// Which GPUs have been given access to which others' memory, by cudaDeviceEnablePeerAccess.
class EnabledPeers {
 public:
  // Returns whether it had not been given.
  bool Add(int device, int peer) {
    std::lock_guard lock(mutex_);
    return pairs_.insert({device, peer}).second;
  }

 private:
  std::mutex mutex_;
  std::set<std::pair<int, int>> pairs_;
};

EnabledPeers& TheEnabledPeers() {
  static EnabledPeers& peers = *new EnabledPeers;
  return peers;
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
  const int64_t limit = TheSharedLimits().Of(launch.address, current_device);
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
  if (shape.stream == nullptr || shape.stream->stream->device != current_device) {
    return Refuse(cudaErrorInvalidResourceHandle,
                  absl::StrCat(launch.name, ": the stream is not one of GPU ", current_device,
                               ", which is the calling thread's (cudaSetDevice)"));
  }
  return cudaSuccess;
}

// An allocation or release, or a copy, in the order of a stream.
cudaError_t QueueRuntime(cudaStream_t stream, Operation operation) {
  if (stream == nullptr) {
    return Refuse(cudaErrorInvalidResourceHandle,
                  absl::StrCat(operation.name, ": the default stream is not emulated"));
  }
  TheMachine().Queue(stream->stream, std::move(operation));
  return DeviceError();
}

cudaError_t Allocate(void** block, size_t bytes, const std::shared_ptr<MemoryPool>& pool,
                     cudaStream_t stream) {
  *block = nullptr;
  if (bytes == 0) return cudaSuccess;
  void* const reserved = TheMachine().memory().Reserve(pool, bytes);
  if (reserved == nullptr) return Result(cudaErrorMemoryAllocation);
  *block = reserved;
  return QueueRuntime(stream, {.name = "cudaMallocAsync", .run = [reserved] {
                                 TheMachine().memory().Begin(reserved);
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
        device(TheMachine().memory().DeviceOf(at)),
        is_page_locked(device < 0 && TheMachine().memory().IsPageLocked(at, bytes)) {}
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
  if (stream != nullptr && stream->stream->device != current_device) {
    return Refuse(cudaErrorInvalidResourceHandle,
                  absl::StrCat("cudaMemcpyAsync: the stream is not one of GPU ", current_device,
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
  const int device = current_device;
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

int CurrentDevice() { return current_device; }

void QueueOn(cudaStream_t stream, Operation operation) {
  TheMachine().Queue(stream->stream, std::move(operation));
}

cudaError_t Refuse(cudaError_t error, const std::string& why) {
  LOG(ERROR) << "emulated CUDA: " << cudaGetErrorName(error) << ": " << why;
  return Result(error);
}

std::optional<Fault> JudgeAccess(const std::string& name, int device, const char* what,
                                 const void* address, size_t bytes) {
  const std::string problem = TheMachine().memory().Judge(device, address, bytes);
  if (problem.empty()) return std::nullopt;
  return Fault{cudaErrorIllegalAddress,
               absl::StrCat("GPU ", device, ": ", name, " ", what, " ", bytes, " bytes ", problem)};
}

void QueueKernel(KernelLaunch launch) {
  if (DeviceError() != cudaSuccess || JudgeLaunch(launch) != cudaSuccess) return;
  const cudaStream_t stream = launch.shape.stream;
  const uint64_t seed = TheMachine().Random();
  QueueOn(stream,
          {.name = launch.name, .run = [launch = std::move(launch), device = current_device, seed] {
             return RunKernel(launch, device, TheMachine().memory(), seed);
           }});
}

}  // namespace lockstep::emulation

using lockstep::emulation::Allocate;
using lockstep::emulation::Copy;
using lockstep::emulation::current_device;
using lockstep::emulation::DeviceError;
using lockstep::emulation::last_error;
using lockstep::emulation::Machine;
using lockstep::emulation::MemoryPool;
using lockstep::emulation::QueueRuntime;
using lockstep::emulation::Refuse;
using lockstep::emulation::Result;
using lockstep::emulation::Side;
using lockstep::emulation::TheEnabledPeers;
using lockstep::emulation::TheMachine;
using lockstep::emulation::TheSharedLimits;

#define LS_RETURN_IF_DEVICE_FAILED() \
  if (const cudaError_t failed = DeviceError(); failed != cudaSuccess) return failed

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define LS_NAME(name) \
  case name:          \
    return #name
    LS_NAME(cudaSuccess);
    LS_NAME(cudaErrorInvalidValue);
    LS_NAME(cudaErrorMemoryAllocation);
    LS_NAME(cudaErrorInitializationError);
    LS_NAME(cudaErrorInvalidConfiguration);
    LS_NAME(cudaErrorInsufficientDriver);
    LS_NAME(cudaErrorNoDevice);
    LS_NAME(cudaErrorInvalidDevice);
    LS_NAME(cudaErrorInvalidResourceHandle);
    LS_NAME(cudaErrorNotReady);
    LS_NAME(cudaErrorIllegalAddress);
    LS_NAME(cudaErrorLaunchTimeout);
    LS_NAME(cudaErrorPeerAccessAlreadyEnabled);
    LS_NAME(cudaErrorAssert);
    LS_NAME(cudaErrorHardwareStackError);
    LS_NAME(cudaErrorIllegalInstruction);
    LS_NAME(cudaErrorMisalignedAddress);
    LS_NAME(cudaErrorInvalidAddressSpace);
    LS_NAME(cudaErrorInvalidPc);
    LS_NAME(cudaErrorLaunchFailure);
#undef LS_NAME
  }
  return "an error that CUDA does not have";
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "an emulated GPU said why when it met this";
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = TheMachine().devices();
  return *count == 0 ? Result(cudaErrorNoDevice) : cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= TheMachine().devices()) return Result(cudaErrorInvalidDevice);
  current_device = device;
  return DeviceError();
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= TheMachine().devices()) return Result(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(lockstep::emulation::SharedBytesOfBlock());
      break;
  }
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= TheMachine().devices()) return Result(cudaErrorInvalidDevice);
  *properties = {};
  properties->uuid.bytes[0] = static_cast<char>(device + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  LS_RETURN_IF_DEVICE_FAILED();
  TheMachine().AwaitDevice(current_device);
  return DeviceError();
}

cudaError_t cudaDeviceCanAccessPeer(int* can_access, int device, int peer) {
  const int devices = TheMachine().devices();
  if (device < 0 || device >= devices || peer < 0 || peer >= devices) {
    return Result(cudaErrorInvalidDevice);
  }
  *can_access = TheMachine().ArePeers(device, peer) ? 1 : 0;
  return DeviceError();
}

// All memory here is a pool's, which this does not open.
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  LS_RETURN_IF_DEVICE_FAILED();
  if (flags != 0) return Result(cudaErrorInvalidValue);
  const bool is_device = peer >= 0 && peer < TheMachine().devices();
  if (!is_device || !TheMachine().ArePeers(current_device, peer)) {
    return Refuse(cudaErrorInvalidDevice,
                  absl::StrCat("cudaDeviceEnablePeerAccess: GPU ", current_device,
                               " cannot reach memory of GPU ", peer));
  }
  return TheEnabledPeers().Add(current_device, peer) ? cudaSuccess
                                                     : Result(cudaErrorPeerAccessAlreadyEnabled);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int /*priority*/) {
  if (flags != cudaStreamNonBlocking) {
    return Refuse(cudaErrorInvalidValue, "streams that wait for the default stream: not emulated");
  }
  LS_RETURN_IF_DEVICE_FAILED();
  *stream = new CUstream_st{TheMachine().NewStream(current_device)};
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  TheMachine().Forget(stream->stream);
  delete stream;
  return DeviceError();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  TheMachine().Await(TheMachine().MarkOf(stream->stream));
  return Result(TheMachine().error(stream->stream->device));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return QueueRuntime(stream, {.name = "cudaStreamWaitEvent",
                               .run = [] { return std::nullopt; },
                               .is_ready = [mark = event->mark] { return mark.IsReached(); }});
}

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  LS_RETURN_IF_DEVICE_FAILED();
  *status = cudaStreamCaptureStatusNone;  // graphs are not emulated
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  LS_RETURN_IF_DEVICE_FAILED();
  *event =
      new CUevent_st{.device = current_device, .has_time = (flags & cudaEventDisableTiming) == 0};
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (stream == nullptr || stream->stream->device != event->device) {
    return Refuse(cudaErrorInvalidResourceHandle,
                  absl::StrCat("cudaEventRecord: an event of GPU ", event->device,
                               " on a stream of another"));
  }
  if (event->has_time) {
    event->nanos = std::make_shared<uint64_t>(0);
    lockstep::emulation::QueueOn(
        stream,
        {.name = "cudaEventRecord", .run = [of_stream = stream->stream, nanos = event->nanos] {
           *nanos = of_stream->nanos;
           return std::nullopt;
         }});
  }
  event->mark = TheMachine().MarkOf(stream->stream);
  return DeviceError();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  TheMachine().Await(event->mark);
  return Result(TheMachine().error(event->device));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t failed = TheMachine().error(event->device); failed != cudaSuccess) {
    return Result(failed);
  }
  return TheMachine().Poll(event->mark) ? Result(TheMachine().error(event->device))
                                        : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  constexpr double kNanosOfMillisecond = 1e6;
  if (start->nanos == nullptr || end->nanos == nullptr || start->device != end->device) {
    return Refuse(cudaErrorInvalidResourceHandle,
                  "cudaEventElapsedTime: events that were not recorded, were made with "
                  "cudaEventDisableTiming, or are of two GPUs");
  }
  if (!TheMachine().Poll(start->mark) || !TheMachine().Poll(end->mark)) return cudaErrorNotReady;
  const auto nanos = static_cast<double>(*end->nanos) - static_cast<double>(*start->nanos);
  *milliseconds = static_cast<float>(nanos / kNanosOfMillisecond);
  return Result(TheMachine().error(start->device));
}

cudaError_t cudaMallocHost(void** host, size_t bytes) {
  LS_RETURN_IF_DEVICE_FAILED();
  *host = TheMachine().memory().PageLock(bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* host) {
  // "May implicitly synchronize", and what a GPU still reads must stay.
  TheMachine().AwaitDevice(current_device);
  if (!TheMachine().memory().Unlock(host)) return Result(cudaErrorInvalidValue);
  return DeviceError();
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = static_cast<size_t>(TheMachine().memory().free_bytes(current_device));
  *total = static_cast<size_t>(lockstep::emulation::Memory::kBytesOfDevice);
  return DeviceError();
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  const bool is_device = properties->allocType == cudaMemAllocationTypePinned &&
                         properties->location.type == cudaMemLocationTypeDevice;
  if (!is_device || properties->location.id >= TheMachine().devices()) {
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
                           location.id < TheMachine().devices();
    if (!is_device || flags == cudaMemAccessFlagsProtRead) {
      return Refuse(cudaErrorInvalidValue,
                    "cudaMemPoolSetAccess: a GPU has all access to a pool or none");
    }
    if (location.id == owner && flags == cudaMemAccessFlagsProtNone) {
      return Refuse(cudaErrorInvalidValue, "cudaMemPoolSetAccess: a GPU keeps its own memory");
    }
    if (location.id != owner && !TheMachine().ArePeers(location.id, owner)) {
      return Refuse(cudaErrorInvalidDevice, absl::StrCat("cudaMemPoolSetAccess: GPU ", location.id,
                                                         " cannot reach memory of GPU ", owner));
    }
  }
  for (size_t i = 0; i < count; ++i) {
    TheMachine().memory().SetAccess(*pool->pool, accesses[i].location.id,
                                    accesses[i].flags == cudaMemAccessFlagsProtReadWrite);
  }
  return DeviceError();
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return DeviceError(); }

cudaError_t cudaMallocAsync(void** block, size_t bytes, cudaStream_t stream) {
  LS_RETURN_IF_DEVICE_FAILED();
  return Allocate(block, bytes, TheMachine().memory().DefaultPool(stream->stream->device), stream);
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
  if (TheMachine().memory().BytesOf(block) < 0) {
    return Refuse(cudaErrorInvalidValue, "cudaFreeAsync: no block of a GPU's memory, or freed");
  }
  return QueueRuntime(
      stream, {.name = "cudaFreeAsync", .run = [=]() -> std::optional<lockstep::emulation::Fault> {
                 if (TheMachine().memory().End(block)) return std::nullopt;
                 return lockstep::emulation::Fault{cudaErrorInvalidValue,
                                                   "cudaFreeAsync frees a block twice"};
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
    if (TheMachine().memory().DeviceOf(address) == device) continue;
    return Refuse(cudaErrorInvalidValue,
                  absl::StrCat("cudaMemcpyPeerAsync: an address that is not of GPU ", device));
  }
  // Each GPU has its own side, and the driver brings the bytes from one to the other.
  return QueueRuntime(stream, {.name = "cudaMemcpyPeerAsync",
                               .run = [=]() -> std::optional<lockstep::emulation::Fault> {
                                 for (const auto& [address, device] : sides) {
                                   auto fault = lockstep::emulation::JudgeAccess(
                                       "cudaMemcpyPeerAsync", device, "copies", address, bytes);
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
  return QueueRuntime(stream, {.name = "cudaMemsetAsync",
                               .run = [=]() -> std::optional<lockstep::emulation::Fault> {
                                 auto fault = lockstep::emulation::JudgeAccess(
                                     "cudaMemsetAsync", device, "writes", to, bytes);
                                 if (!fault.has_value()) std::memset(to, value, bytes);
                                 return fault;
                               }});
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  LS_RETURN_IF_DEVICE_FAILED();
  if (value < 0 || value > lockstep::emulation::SharedBytesOfBlock()) {
    return Refuse(cudaErrorInvalidValue,
                  absl::StrCat("cudaFuncSetAttribute: ", value, " bytes of shared memory"));
  }
  TheSharedLimits().Set(kernel, current_device, value);
  return cudaSuccess;
}
