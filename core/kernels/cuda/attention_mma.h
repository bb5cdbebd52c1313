// Causal self-attention in fp16 and bf16 on tensor cores, for heads of 64 and 128 elements.

#pragma once

#include <cstdint>
#include <initializer_list>

#include "core/kernels/cuda/array.h"
#include "core/kernels/options.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

// Whether these kernels can compute with the tensors: all of one 16-bit dtype, from multiples of 16
// bytes on.
bool FitsTensorCores(const Attention& attention, int64_t time,
                     std::initializer_list<Array> tensors);

// As their namesakes in attention.h, for what fits.
cudaError_t TensorCoreAttentionForward(cudaStream_t stream, const Attention& attention,
                                       int64_t batch, int64_t time, Array qkv, Array y,
                                       float* log_sum_exp);
cudaError_t TensorCoreAttentionBackward(cudaStream_t stream, const Attention& attention,
                                        int64_t batch, int64_t time, Array qkv, Array y,
                                        const float* log_sum_exp, Array dy, float* products,
                                        Array dqkv);

}  // namespace lockstep::cuda
