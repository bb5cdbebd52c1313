// What moves elements between members whose memory is on one GPU.

#pragma once

#include <cstdint>

#include "core/comm/operation.h"
#include "core/tensor/dtype.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

// The most members whose elements can be combined at once: their addresses are a kernel's
// arguments.
inline constexpr int kMostMembers = 64;

struct ReduceMembers {
  const void* inputs[kMostMembers];
  void* outputs[kMostMembers];
  int input_count = 0;
  int output_count = 0;
};

// Combines elements [0, count) of all inputs along the tree over the inputs and stores the result
// at the same place of each output, with the bits of ReduceByTree (core/comm/reduce.h). An output
// may be the very memory of an input.
cudaError_t ReduceByTree(cudaStream_t stream, DType dtype, ReduceOp op,
                         const ReduceMembers& members, int64_t count);

cudaError_t SwapBytes(cudaStream_t stream, void* one, void* other, int64_t bytes);

}  // namespace lockstep::cuda
