// The libraries' stand-ins on emulated GPUs, which programs are linked with.

#include "core/cuda/libraries/libraries.h"

namespace lockstep::cuda {

absl::Status LoadCublasLt() { return absl::OkStatus(); }
absl::Status LoadCudnn() { return absl::OkStatus(); }
absl::Status LoadNccl() { return absl::OkStatus(); }

}  // namespace lockstep::cuda
