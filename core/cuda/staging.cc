#include "core/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "core/cuda/error.h"

namespace lockstep {

CudaStaging::CudaStaging(const CudaContext& context, int64_t most_bytes)
    : context_(context),
      most_slots_(static_cast<size_t>(std::max<int64_t>(1, most_bytes / kSlotBytes))) {
  context.MakeCurrent();
  slots_.push_back(NewSlot());
}

CudaStaging::~CudaStaging() {
  for (Slot& slot : slots_) {
    cuda::LogError(cudaEventSynchronize(slot.done), "cudaEventSynchronize");
    cuda::LogError(cudaEventDestroy(slot.done), "cudaEventDestroy");
    cuda::LogError(cudaFreeHost(slot.memory), "cudaFreeHost");
  }
}

CudaStaging::Slot CudaStaging::NewSlot() {
  Slot slot;
  LS_CUDA(cudaMallocHost(reinterpret_cast<void**>(&slot.memory), kSlotBytes));
  LS_CUDA(cudaEventCreateWithFlags(&slot.done, cudaEventDisableTiming));
  return slot;
}

CudaStaging::Slot& CudaStaging::NextSlot() {
  if (slots_.size() < most_slots_) {
    const cudaError_t error = cudaEventQuery(slots_[next_].done);
    if (error == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());  // no failure
      slots_.insert(slots_.begin() + static_cast<std::ptrdiff_t>(next_), NewSlot());
    } else {
      LS_CUDA(error);
    }
  }
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % slots_.size();
  LS_CUDA(cudaEventSynchronize(slot.done));
  return slot;
}

void CudaStaging::ToDevice(const void* host, void* device, int64_t bytes) {
  const auto* from = static_cast<const std::byte*>(host);
  auto* to = static_cast<std::byte*>(device);
  for (int64_t at = 0; at < bytes; at += kSlotBytes) {
    const auto size = static_cast<size_t>(std::min(kSlotBytes, bytes - at));
    Slot& slot = NextSlot();
    std::memcpy(slot.memory, from + at, size);
    LS_CUDA(cudaMemcpyAsync(to + at, slot.memory, size, cudaMemcpyHostToDevice, context_.stream()));
    LS_CUDA(cudaEventRecord(slot.done, context_.stream()));
  }
}

void CudaStaging::ToHost(const void* device, void* host, int64_t bytes) {
  const auto* from = static_cast<const std::byte*>(device);
  auto* to = static_cast<std::byte*>(host);
  for (int64_t at = 0; at < bytes; at += kSlotBytes) {
    const auto size = static_cast<size_t>(std::min(kSlotBytes, bytes - at));
    Slot& slot = NextSlot();
    LS_CUDA(
        cudaMemcpyAsync(slot.memory, from + at, size, cudaMemcpyDeviceToHost, context_.stream()));
    context_.Synchronize();
    std::memcpy(to + at, slot.memory, size);
  }
}

}  // namespace lockstep
