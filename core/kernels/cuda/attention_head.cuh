// One head of one sequence: where its rows lie in the tensors of all heads. Blocks (anything, head,
// sequence).

#pragma once

#include <cstdint>

#include "core/kernels/cuda/philox.cuh"
#include "core/kernels/options.h"
#include "cuda_runtime.h"

namespace lockstep::cuda {

struct Head {
  Attention attention;
  int batch, head;
  int64_t time;
  float scale;

  __device__ Head(const Attention& a, int64_t time)
      : attention(a),
        batch(static_cast<int>(blockIdx.z)),
        head(static_cast<int>(blockIdx.y)),
        time(time),
        scale(1.0f / sqrtf(static_cast<float>(a.head_width))) {}

  __device__ int width() const { return static_cast<int>(attention.head_width); }
  __device__ int64_t all() const { return attention.heads * attention.head_width; }
  // The head's row at time t: of queries (0), keys (1) or values (2) in qkv, and in y.
  __device__ int64_t InQkv(int which, int64_t t) const {
    return ((batch * time + t) * 3 + which) * all() + head * width();
  }
  __device__ int64_t InY(int64_t t) const { return (batch * time + t) * all() + head * width(); }
  // Of numbers [batch, heads, time].
  __device__ int64_t InSums(int64_t t) const { return (batch * attention.heads + head) * time + t; }
  // The element of dropout's mask for query i and key j.
  __device__ int64_t InMask(int64_t i, int64_t j) const {
    return ((batch * attention.total_heads + attention.first_head + head) * time + i) * time + j;
  }
  // What the probability of query i and key j is multiplied by.
  __device__ float DropoutOf(int64_t i, int64_t j) const {
    const Dropout& dropout = attention.dropout;
    if (dropout.probability <= 0) return 1;
    return DropoutFactor(dropout, static_cast<uint64_t>(InMask(i, j)));
  }
};

}  // namespace lockstep::cuda
