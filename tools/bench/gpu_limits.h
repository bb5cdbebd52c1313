#pragma once

#include "absl/status/statusor.h"

namespace lockstep {

// What the first GPU gives at best, measured.
struct GpuLimits {
  double bf16_gflops = 0;       // products of 8192 x 8192 matrices by cuBLASLt
  double bytes_per_second = 0;  // read and written by a copy of 4 GiB

  // An upload of 256 images for ResNet-50 in fp32, 154 MB: from page-locked memory, how long the
  // host is held by that, and from other memory, by slots.
  double upload_seconds = 0, upload_host_seconds = 0, slots_seconds = 0;
  // A product as above, and one with an upload beside it: no more than the longer of the two.
  double product_seconds = 0, product_and_upload_seconds = 0;
};

// Takes some seconds. Unavailable where there is no GPU.
absl::StatusOr<GpuLimits> MeasureGpuLimits();

}  // namespace lockstep
