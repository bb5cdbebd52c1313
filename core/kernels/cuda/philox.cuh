// The random numbers of core/base/philox.h, to the bit.

#pragma once

#include <cstdint>

#include "core/kernels/options.h"
#include "cuda_runtime.h"

namespace lockstep::cuda {

// The words of block `block` (elements 4 block to 4 block + 3) of the stream `key`.
__device__ inline uint4 PhiloxBlock(uint64_t key, uint64_t block, uint64_t hi) {
  uint4 c = make_uint4(static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                       static_cast<uint32_t>(hi), static_cast<uint32_t>(hi >> 32));
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c.x, p1 = uint64_t{0xCD9E8D57} * c.z;
    c = make_uint4(static_cast<uint32_t>(p1 >> 32) ^ c.y ^ k0, static_cast<uint32_t>(p1),
                   static_cast<uint32_t>(p0 >> 32) ^ c.w ^ k1, static_cast<uint32_t>(p0));
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

// What an element is multiplied by whose random bits are `bits`: 1 / (1 - probability) where it is
// kept, else 0.
__device__ inline float DropoutFactorOf(const Dropout& dropout, uint32_t bits) {
  const float uniform = static_cast<float>(bits >> 8) * 0x1p-24f;
  return uniform >= dropout.probability ? 1.0f / (1.0f - dropout.probability) : 0.0f;
}

// The same for element `index`.
__device__ inline float DropoutFactor(const Dropout& dropout, uint64_t index) {
  const uint4 c = PhiloxBlock(dropout.key, index / 4, dropout.counter);
  const uint32_t word = index % 4;
  return DropoutFactorOf(dropout, word == 0 ? c.x : word == 1 ? c.y : word == 2 ? c.z : c.w);
}

}  // namespace lockstep::cuda
