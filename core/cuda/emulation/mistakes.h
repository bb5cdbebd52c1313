// Kernels for emulation_test.cc, right or with a mistake that their arguments ask for.

#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"

namespace lockstep::emulation {

// x[i] = value for i < count; a block for each 256 elements.
void FillElements(cudaStream_t stream, float* x, int64_t count, float value);

// y = x, 16 bytes a thread.
void CopyVectors(cudaStream_t stream, const float* x, float* y, int threads);

// What stands between the writes of all threads and their reads.
enum class Barrier { kWhole, kMissing, kAwaitsTheWarp };
// x[i] = 255 - i for i < 256, by way of shared memory of `shared_bytes`.
void Reverse(cudaStream_t stream, float* x, Barrier barrier, int64_t shared_bytes = 1024);

// x[i] = i ^ 1 for i < 256, by way of shared memory within each warp.
void SwapLanes(cudaStream_t stream, float* x, bool synchronizes);

// One thread with kSharedElements of shared memory, which writes 1 to element `written` unless that
// is negative: x[0] = element `read`.
constexpr int64_t kSharedElements = 64;
void UseShared(cudaStream_t stream, float* x, int64_t written, int64_t read);

// x[i] = x[i ^ 1] for the lanes of `mask` of one warp.
void ShuffleLanes(cudaStream_t stream, float* x, unsigned mask);

// When a thread waits for its asynchronous copy.
enum class CopyWait { kBeforeUse, kAfterUse, kNever };
// *y = *x, by way of shared memory and an asynchronous copy.
void CopyOverShared(cudaStream_t stream, const float* x, float* y, CopyWait wait);

// More than the 32,764 bytes that a kernel's arguments may have.
struct LargeArgument {
  float values[8192];
};
void PassLargeArgument(cudaStream_t stream, const LargeArgument& argument, float* x);

}  // namespace lockstep::emulation
