#include "core/cuda/device.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/cuda/error.h"

namespace lockstep::cuda {
namespace {

constexpr int kOldestMajor = 8;  // of the compute capability; build_defs/cuda.bzl

std::string Version(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

// What CUDA reads from the environment when it starts, where the user has not chosen otherwise.
void SetDefaults() {
  constexpr int kKeep = 0;
  // A kernel that is loaded when it is first started may wait for kernels of NCCL's, which wait for
  // other ranks.
  setenv("CUDA_MODULE_LOADING", "EAGER", kKeep);
  // Queues of the hardware: with fewer than there are streams, one waits for another.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", kKeep);
}

}  // namespace

absl::StatusOr<int> JudgeDevices(cudaError_t error, int count, int driver, const char* visible) {
  if (error == cudaErrorInsufficientDriver && driver > 0) {
    return absl::UnavailableError(
        absl::StrCat("--device cuda: the NVIDIA driver is too old: it supports CUDA ",
                     Version(driver), ", and this program was built with ", Version(CUDART_VERSION),
                     "; update the driver, or use --device cpu"));
  }
  if (error == cudaErrorInsufficientDriver) {
    return absl::UnavailableError(
        "--device cuda: this machine has no NVIDIA driver (libcuda.so.1 was not found); install "
        "it, or use --device cpu");
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    return absl::UnavailableError(
        absl::StrCat("--device cuda: no NVIDIA GPU is visible",
                     visible != nullptr ? absl::StrCat(" (CUDA_VISIBLE_DEVICES is '", visible, "')")
                                        : std::string(),
                     "; nvidia-smi lists what the machine has; or use --device cpu"));
  }
  if (error != cudaSuccess) {
    return absl::UnavailableError(absl::StrCat("--device cuda: ", cudaGetErrorName(error), ": ",
                                               cudaGetErrorString(error),
                                               "; does nvidia-smi work? Or use --device cpu"));
  }
  return count;
}

absl::StatusOr<int> CountDevices() {
  SetDefaults();
  int count = 0, driver = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  return JudgeDevices(error, count, driver, std::getenv("CUDA_VISIBLE_DEVICES"));
}

absl::StatusOr<std::vector<std::array<int64_t, 2>>> DeviceIds() {
  LS_ASSIGN_OR_RETURN(const int devices, CountDevices());
  std::vector<std::array<int64_t, 2>> ids(static_cast<size_t>(devices));
  for (int ordinal = 0; ordinal < devices; ++ordinal) {
    cudaDeviceProp properties;
    LS_RETURN_IF_CUDA_ERROR(cudaGetDeviceProperties(&properties, ordinal));
    static_assert(sizeof(properties.uuid) == sizeof(ids[0]));
    std::memcpy(ids[static_cast<size_t>(ordinal)].data(), &properties.uuid, sizeof(ids[0]));
  }
  return ids;
}

absl::Status CheckDevice(int ordinal) {
  int major = 0, minor = 0;
  LS_RETURN_IF_CUDA_ERROR(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal));
  LS_RETURN_IF_CUDA_ERROR(
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal));
  if (major >= kOldestMajor) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("--device cuda: GPU ", ordinal, " has compute capability ", major, ".", minor,
                   ", and this program needs ", kOldestMajor,
                   ".0 (A100) or later; use another GPU, or --device cpu"));
}

}  // namespace lockstep::cuda
