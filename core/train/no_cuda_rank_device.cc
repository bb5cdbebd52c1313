#include "core/train/cuda_rank_device.h"

namespace lockstep {

absl::Status CheckCudaDevice() {
  return absl::UnavailableError(
      "--device cuda: this program was built without CUDA; build it with --config=cuda, or use "
      "--device cpu");
}

absl::StatusOr<std::unique_ptr<RankDevice>> MakeCudaRankDevice() { return CheckCudaDevice(); }

}  // namespace lockstep
