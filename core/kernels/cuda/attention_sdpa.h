// cuDNN's scaled dot-product attention (SDPA). What needs the headers of cuDNN's frontend is in the
// source alone.

#pragma once

#include <cudnn.h>

#include <functional>
#include <memory>

#include "core/kernels/cuda/attention_plans.h"

namespace lockstep::cuda {

// Whether the program was built with the frontend's headers (third_party/cudnn_frontend).
bool IsBuiltWithCudnnFrontend();

// Attention by cuDNN in fp16 and bf16, with sums in fp32 and a backward pass that repeats its bits.
// Refuses every shape where the program was built without the frontend's headers. `handle` returns
// the rank's, which outlives the plans; it is called for the first plan, and may throw a
// StatusException.
std::unique_ptr<AttentionLibrary> CudnnAttention(std::function<cudnnHandle_t()> handle);

}  // namespace lockstep::cuda
