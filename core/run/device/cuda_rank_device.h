#pragma once

#include <memory>

#include "core/run/device/rank_device.h"

namespace lockstep {

// The part of rank_device.h that knows CUDA; --config=cuda decides which of two sources it is.
absl::StatusOr<std::shared_ptr<RankDevices>> CreateCudaRankDevices(const RanksHere& ranks);

}  // namespace lockstep
