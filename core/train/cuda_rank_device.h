#pragma once

#include "core/train/rank_device.h"

namespace lockstep {

// The part of rank_device.h that knows CUDA; --config=cuda decides which of two sources it is.
absl::Status CheckCudaDevice();
absl::StatusOr<std::unique_ptr<RankDevice>> MakeCudaRankDevice();

}  // namespace lockstep
