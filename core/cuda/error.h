#pragma once

#include "absl/status/status.h"
#include "core/base/status.h"  // ThrowIfError
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

// "core/cuda/context.cc:31: cudaStreamCreate(&stream): cudaErrorX: what CUDA says of it", or OK.
// What a kernel does wrong on the device shows at a later call: the message says so.
absl::Status ToStatus(cudaError_t error, const char* call, const char* file, int line);

// For destructors, which can throw nothing: logs the error, if it is one. Not one of work that was
// queued earlier: whoever waits for that work reports it, and here every object would once more.
void LogError(cudaError_t error, const char* call);

}  // namespace lockstep::cuda

// Throws a StatusException if the call, a cudaError_t, fails.
//
//   LS_CUDA(cudaStreamSynchronize(stream));
#define LS_CUDA(...) \
  lockstep::ThrowIfError(lockstep::cuda::ToStatus((__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__))

// Returns the status from the enclosing function, which returns Status or StatusOr, if it fails.
#define LS_RETURN_IF_CUDA_ERROR(...) \
  LS_RETURN_IF_ERROR(lockstep::cuda::ToStatus((__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__))
