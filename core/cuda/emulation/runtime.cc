// CUDA's runtime on emulated GPUs: errors and GPUs. What a call of the runtime refuses is what its
// documentation refuses.

#include "core/cuda/emulation/runtime.h"

#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/cuda/emulation/machine.h"
#include "core/cuda/emulation/memory.h"
#include "core/cuda/emulation/shared_memory.h"
#include "glog/logging.h"

namespace lockstep::emulation {
namespace {

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

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

}  // namespace

int CurrentDevice() { return current_device; }

cudaError_t Result(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t DeviceError() {
  if (Machine::Get().devices() == 0) return Result(cudaErrorNoDevice);
  return Result(Machine::Get().error(current_device));
}

cudaError_t Refuse(cudaError_t error, const std::string& why) {
  LOG(ERROR) << "emulated CUDA: " << cudaGetErrorName(error) << ": " << why;
  return Result(error);
}

}  // namespace lockstep::emulation

using lockstep::emulation::current_device;
using lockstep::emulation::DeviceError;
using lockstep::emulation::last_error;
using lockstep::emulation::Machine;
using lockstep::emulation::Refuse;
using lockstep::emulation::Result;
using lockstep::emulation::SharedBytesOfBlock;
using lockstep::emulation::TheEnabledPeers;

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
  *count = Machine::Get().devices();
  return *count == 0 ? Result(cudaErrorNoDevice) : cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= Machine::Get().devices()) return Result(cudaErrorInvalidDevice);
  current_device = device;
  return DeviceError();
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= Machine::Get().devices()) return Result(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(SharedBytesOfBlock());
      break;
  }
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= Machine::Get().devices()) return Result(cudaErrorInvalidDevice);
  *properties = {};
  properties->uuid.bytes[0] = static_cast<char>(device + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  LS_RETURN_IF_DEVICE_FAILED();
  Machine::Get().AwaitDevice(current_device);
  return DeviceError();
}

cudaError_t cudaDeviceCanAccessPeer(int* can_access, int device, int peer) {
  const int devices = Machine::Get().devices();
  if (device < 0 || device >= devices || peer < 0 || peer >= devices) {
    return Result(cudaErrorInvalidDevice);
  }
  *can_access = Machine::Get().ArePeers(device, peer) ? 1 : 0;
  return DeviceError();
}

// All memory here is a pool's, which this does not open.
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  LS_RETURN_IF_DEVICE_FAILED();
  if (flags != 0) return Result(cudaErrorInvalidValue);
  const bool is_device = peer >= 0 && peer < Machine::Get().devices();
  if (!is_device || !Machine::Get().ArePeers(current_device, peer)) {
    return Refuse(cudaErrorInvalidDevice,
                  absl::StrCat("cudaDeviceEnablePeerAccess: GPU ", current_device,
                               " cannot reach memory of GPU ", peer));
  }
  return TheEnabledPeers().Add(current_device, peer) ? cudaSuccess
                                                     : Result(cudaErrorPeerAccessAlreadyEnabled);
}
