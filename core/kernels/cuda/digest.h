// What tells the bits of two results apart without a second copy of them.

#pragma once

#include <cstdint>

#include "core/kernels/cuda/array.h"
#include "cuda_runtime_api.h"

namespace lockstep::cuda {

struct Digest {
  // A sum modulo 2^64 over all elements, each mixed with its place: any order gives the same, and
  // two results that differ have the same one by chance in one of 2^64 cases.
  unsigned long long bits = 0;
  // Elements that are finite and not 0. Where there are few of them, results of different orders
  // of sums are the same by nature.
  unsigned long long telling = 0;

  bool operator==(const Digest&) const = default;
};

// Adds the elements of x to the digest, which lies in the GPU's memory. `salt` tells arrays of one
// digest apart.
cudaError_t AddToDigest(cudaStream_t stream, int64_t elements, Array x, uint64_t salt,
                        Digest* digest);

}  // namespace lockstep::cuda
