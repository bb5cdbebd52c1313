#include "tools/portable/gpu_versions.h"

#include <cstddef>
#include <cstdio>

#include "cublasLt.h"
#include "cuda_runtime_api.h"
#include "cudnn.h"
#include "nccl.h"

namespace lockstep {

int PrintGpuVersions() {
  // What goes wrong leaves 0; a driver that is missing does too, without an error.
  int driver = 0, runtime = 0, nccl = 0;
  static_cast<void>(cudaDriverGetVersion(&driver));
  static_cast<void>(cudaRuntimeGetVersion(&runtime));
  static_cast<void>(ncclGetVersion(&nccl));
  std::printf("driver for CUDA %d.%d, CUDA runtime %d.%d\n", driver / 1000, driver % 1000 / 10,
              runtime / 1000, runtime % 1000 / 10);
  std::printf("cuBLASLt %zu, cuDNN %zu, NCCL %d\n", cublasLtGetVersion(), cudnnGetVersion(), nccl);
  return driver == 0 ? 1 : 0;
}

}  // namespace lockstep
