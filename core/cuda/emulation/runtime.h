// What the parts of CUDA's emulated runtime share. The calls that CUDA documents are declared by
// include/cuda_runtime_api.h, what libraries need by handles.h.

#pragma once

#include "core/cuda/emulation/handles.h"
#include "core/cuda/emulation/machine.h"

namespace lockstep::emulation {

// Returns the error, which cudaGetLastError returns as well if it is one.
cudaError_t Result(cudaError_t error);

// What the calling thread's GPU has failed with.
cudaError_t DeviceError();

// Queues what a call of the runtime does in the order of a stream. Returns what the calling
// thread's GPU has failed with, or cudaErrorInvalidResourceHandle for the default stream.
cudaError_t QueueRuntime(cudaStream_t stream, Operation operation);

}  // namespace lockstep::emulation

// For a call that a failed GPU refuses.
#define LS_RETURN_IF_DEVICE_FAILED()                                                        \
  if (const cudaError_t failed = lockstep::emulation::DeviceError(); failed != cudaSuccess) \
  return failed
