#pragma once

#include "absl/status/statusor.h"

namespace lockstep {

// What the first GPU gives at best, measured.
struct GpuLimits {
  double bf16_gflops = 0;       // products of 8192 x 8192 matrices by cuBLASLt
  double bytes_per_second = 0;  // read and written by a copy of 4 GiB
};

// Takes about a second. Unavailable where there is no GPU.
absl::StatusOr<GpuLimits> MeasureGpuLimits();

}  // namespace lockstep
