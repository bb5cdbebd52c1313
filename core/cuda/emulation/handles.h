// What CUDA's opaque handles point to.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/cuda/emulation/machine.h"

struct CUstream_st {
  std::shared_ptr<lockstep::emulation::Stream> stream;
};

struct CUevent_st {
  int device;
  lockstep::emulation::Mark mark = {};
  bool has_time = false;
  std::shared_ptr<uint64_t> nanos = nullptr;  // of its stream, when it was last reached
};

struct CUmemPoolHandle_st {
  std::shared_ptr<lockstep::emulation::MemoryPool> pool;
};

namespace lockstep::emulation {

// The GPU of the calling thread: what cudaSetDevice said last, else the first.
int CurrentDevice();

// Queues what a library does on a stream, as the library would.
void QueueOn(cudaStream_t stream, Operation operation);

// Refuses a call: logs why, since CUDA itself says little. The error is cudaGetLastError's as well.
cudaError_t Refuse(cudaError_t error, const std::string& why);

// The fault that `name` meets where it accesses `bytes` that GPU `device` may not; none otherwise.
std::optional<Fault> JudgeAccess(const std::string& name, int device, const char* what,
                                 const void* address, size_t bytes);

}  // namespace lockstep::emulation
