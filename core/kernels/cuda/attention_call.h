#pragma once

#include <cstdint>

#include "core/kernels/kernels.h"

namespace lockstep::cuda {

// Throws Unimplemented where heads are too wide for the GPU's blocks, or heads or sequences too
// many for a launch.
void CheckAttention(const Attention& attention, int64_t sequences);

// `attention` with its documents [samples, time] in the GPU's memory, where they stay as long as
// the object.
class AttentionOnGpu {
 public:
  AttentionOnGpu(Kernels& kernels, const Attention& attention, int64_t samples, int64_t time);

  const Attention& attention() const { return attention_; }

 private:
  Attention attention_;
  Tensor first_;
};

}  // namespace lockstep::cuda
