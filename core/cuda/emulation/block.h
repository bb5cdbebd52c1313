#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/cuda/emulation/launch.h"
#include "core/cuda/emulation/memory.h"

namespace lockstep::emulation {

// What went wrong on a GPU: the error that CUDA reports at a later call, and what CUDA does not
// tell.
struct Fault {
  cudaError_t error;
  std::string message;
};

// Runs all blocks of a launch on the calling thread, one after the other; blocks and warps in an
// order that `seed` chooses. Ends at the first thing that a kernel may not do: an access outside of
// its memory or not aligned, threads that wait for others which never come, and reads and writes of
// shared memory by two threads without a barrier between them.
std::optional<Fault> RunKernel(const KernelLaunch& launch, int device, const Memory& memory,
                               uint64_t seed);

// Shared memory that a block may have, static and what its launch asks for: an H100's, or
// LOCKSTEP_EMULATED_SHARED_BYTES of the environment, which counts from the next call.
int64_t SharedBytesOfBlock();
// Without cudaFuncSetAttribute.
inline constexpr int64_t kUsualSharedBytes = 48 << 10;

}  // namespace lockstep::emulation
