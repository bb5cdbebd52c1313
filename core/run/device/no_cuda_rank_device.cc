#include <memory>

#include "core/run/device/cuda_rank_device.h"

namespace lockstep {

absl::StatusOr<std::shared_ptr<RankDevices>> CreateCudaRankDevices(const RanksHere&) {
  return absl::UnavailableError(
      "--device cuda: this program was built without CUDA; build it with --config=cuda, or use "
      "--device cpu");
}

}  // namespace lockstep
