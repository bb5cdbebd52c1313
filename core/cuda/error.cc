#include "core/cuda/error.h"

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace lockstep::cuda {
namespace {

// Errors of work that was queued earlier, which any later call reports.
bool IsOfEarlierWork(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::Status ToStatus(cudaError_t error, const char* call, const char* file, int line) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      file, ":", line, ": ", call, ": ", cudaGetErrorName(error), ": ", cudaGetErrorString(error),
      IsOfEarlierWork(error)
          ? ", in work that was queued before; run again with CUDA_LAUNCH_BLOCKING=1, or under "
            "compute-sanitizer, to see where"
          : ""));
}

void LogError(cudaError_t error, const char* call) {
  if (error == cudaSuccess || IsOfEarlierWork(error)) return;
  LOG(ERROR) << call << ": " << cudaGetErrorName(error);
}

}  // namespace lockstep::cuda
