// The sums of cuDNN's convolutions on emulated GPUs.

#pragma once

#include "core/cuda/emulation/cudnn_descriptors.h"

namespace lockstep::emulation {

struct Geometry {
  EmulatedTensor x, y;
  EmulatedFilter w;
  EmulatedConvolution convolution;
};

// Why the extents are none of a convolution, or null.
const char* JudgeExtents(const Geometry& g);

// dw = the gradient of the weights + beta dw; each tensor in the type that the geometry says. An
// element is one chain of fused multiply-adds in fp32, rounded once.
void BackwardFilter(const Geometry& g, const void* x, const void* dy, float beta, void* dw);

}  // namespace lockstep::emulation
