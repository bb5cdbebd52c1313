#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

// How many GPUs this process can use, at least 1. To be called before anything else of CUDA: it
// sets CUDA_MODULE_LOADING=EAGER and CUDA_DEVICE_MAX_CONNECTIONS=32 in the environment unless they
// are set. Unavailable, with what to do, where there is no GPU, no driver, or one too old for the
// CUDA that this program was built with.
absl::StatusOr<int> CountDevices();

// What CountDevices says when cudaGetDeviceCount ends with `error` or finds `count` devices.
// `driver` is the newest CUDA that the driver supports, as cudaDriverGetVersion writes it (13000
// is 13.0; 0: there is no driver); `visible` is the environment's CUDA_VISIBLE_DEVICES or null.
absl::StatusOr<int> JudgeDevices(cudaError_t error, int count, int driver, const char* visible);

// The UUIDs of the GPUs that this process can use, in the order of their ordinals.
absl::StatusOr<std::vector<std::array<int64_t, 2>>> DeviceIds();

// Whether GPU `ordinal`, below CountDevices(), can run this program's kernels: compute capability
// 8.0 (A100) or later.
absl::Status CheckDevice(int ordinal);

}  // namespace lockstep::cuda
