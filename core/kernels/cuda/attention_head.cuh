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
  int batch, head, key_head;
  int64_t query_width, key_width;  // of all heads
  int64_t time;
  float scale;

  __device__ Head(const Attention& a, int64_t time)
      : attention(a),
        batch(static_cast<int>(blockIdx.z)),
        head(static_cast<int>(blockIdx.y)),
        key_head(head),
        query_width(a.heads * a.head_width),
        key_width(query_width),
        time(time),
        scale(1.0f / sqrtf(static_cast<float>(a.head_width))) {
    if (a.key_heads <= 0) return;
    key_head = head / group();
    key_width = a.key_heads * a.head_width;
  }

  // Heads of queries that have one head of keys.
  __device__ int group() const {
    return attention.key_heads > 0 ? static_cast<int>(attention.heads / attention.key_heads) : 1;
  }

  __device__ int width() const { return static_cast<int>(attention.head_width); }
  // The head's row at time t: of queries (0), keys (1) or values (2) in qkv, and in y.
  __device__ int64_t InQkv(int which, int64_t t) const {
    const int64_t row = (batch * time + t) * (query_width + 2 * key_width);
    if (which == 0) return row + head * width();
    return row + query_width + (which - 1) * key_width + key_head * width();
  }
  __device__ int64_t InY(int64_t t) const {
    return (batch * time + t) * query_width + head * width();
  }
  // The place of query t in numbers [batch, heads, time].
  __device__ int64_t InSums(int64_t t) const { return (batch * attention.heads + head) * time + t; }
  // The first key that a query sees: that of its document. `documents` lie in the GPU's memory.
  __device__ int64_t FirstKeyOf(int64_t query) const {
    const int32_t* const first = attention.documents.first;
    return first == nullptr ? 0 : first[batch * time + query];
  }
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
