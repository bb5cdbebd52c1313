// Causal self-attention of whole sequences; shapes and dtypes as in core/kernels/kernels.h.

#pragma once

#include <cstdint>

#include "core/kernels/cuda/array.h"
#include "core/kernels/options.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

// The widest head that there are kernels for.
inline constexpr int64_t kWidestHead = 256;

// Shared memory in bytes of a block of the kernels that take any head, for heads of `head_width`
// elements.
int64_t AttentionSharedBytes(int64_t head_width);

// The documents of `attention` lie in the GPU's memory.
cudaError_t AttentionForward(cudaStream_t stream, Attention attention, int64_t batch, int64_t time,
                             Array qkv, Array y, float* log_sum_exp);

// products[b, h, t] = y . dy of that row: the sum over keys of probability times its gradient
// (FlashAttention, section B.4).
cudaError_t AttentionProducts(cudaStream_t stream, Attention attention, int64_t batch, int64_t time,
                              Array y, Array dy, float* products);

// products: scratch, [batch, heads, time].
cudaError_t AttentionBackward(cudaStream_t stream, Attention attention, int64_t batch, int64_t time,
                              Array qkv, Array y, const float* log_sum_exp, Array dy,
                              float* products, Array dqkv);

}  // namespace lockstep::cuda
