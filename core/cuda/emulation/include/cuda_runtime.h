// CUDA's C++ for emulated GPUs: what kernels are written with, as the "CUDA C++ Programming Guide"
// names it, so that a C++ compiler compiles a kernel which translate.py has gone over.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/cuda/emulation/launch.h"
#include "core/cuda/emulation/ptx.h"
#include "core/cuda/emulation/threads.h"
#include "cuda_runtime_api.h"
#include "vector_types.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __align__(bytes) alignas(bytes)
#define __launch_bounds__(...)

#define threadIdx (::lockstep::emulation::ThreadIndex())
#define blockIdx (::lockstep::emulation::BlockIndex())
#define blockDim (::lockstep::emulation::BlockExtents())
#define gridDim (::lockstep::emulation::GridExtents())

inline void __syncthreads() { ::lockstep::emulation::SyncThreads(0); }
inline int __syncthreads_or(int predicate) {
  return ::lockstep::emulation::SyncThreads(predicate != 0) != 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu) { ::lockstep::emulation::SyncWarp(mask); }
inline unsigned __ballot_sync(unsigned mask, bool predicate) {
  return ::lockstep::emulation::Ballot(mask, predicate);
}

// `lane` and `distance` as for a width of 32, the default.
template <typename T>
T __shfl_sync(unsigned mask, T value, int lane) {
  return ::lockstep::emulation::Shuffle(mask, value, lane % 32);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int distance) {
  return ::lockstep::emulation::ShuffleXor(mask, value, distance);
}

inline unsigned long long atomicAdd(unsigned long long* sum, unsigned long long value) {
  return ::lockstep::emulation::AtomicAdd(sum, value);
}

inline size_t __cvta_generic_to_shared(const void* shared) {
  return ::lockstep::emulation::SharedOffset(shared);
}

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline unsigned __float_as_uint(float x) {
  unsigned bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}

inline int min(int a, int b) { return b < a ? b : a; }
inline int max(int a, int b) { return a < b ? b : a; }
