#include "core/cuda/page_locked_allocator.h"

#include <algorithm>
#include <iterator>

#include "core/cuda/error.h"
#include "glog/logging.h"

namespace lockstep {

PageLockedAllocator::~PageLockedAllocator() {
  for (const auto& [memory, block] : live_) kept_.push_back(block);
  for (const Block& block : kept_) {
    cuda::LogError(cudaEventSynchronize(block.uploaded), "cudaEventSynchronize");
    cuda::LogError(cudaEventDestroy(block.uploaded), "cudaEventDestroy");
    cuda::LogError(cudaFreeHost(block.memory), "cudaFreeHost");
  }
}

PageLockedAllocator::Block PageLockedAllocator::NewBlock(int64_t bytes) {
  Block block = {.bytes = bytes};
  const cudaError_t error =
      cudaMallocHost(reinterpret_cast<void**>(&block.memory), static_cast<size_t>(bytes));
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return {};
  }
  LS_CUDA(error);
  LS_CUDA(cudaEventCreateWithFlags(&block.uploaded, cudaEventDisableTiming));
  return block;
}

bool PageLockedAllocator::IsUploaded(const Block& block) {
  const cudaError_t error = cudaEventQuery(block.uploaded);
  if (error == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());  // no failure
    return false;
  }
  LS_CUDA(error);
  return true;
}

void* PageLockedAllocator::AllocateBlock(int64_t bytes) {
  context_.MakeCurrent();
  std::lock_guard lock(blocks_mutex_);
  const auto is_of_size = [bytes](const Block& block) { return block.bytes == bytes; };
  auto chosen = std::find_if(kept_.begin(), kept_.end(), [&](const Block& block) {
    return is_of_size(block) && IsUploaded(block);
  });
  if (chosen == kept_.end()) {
    if (std::count_if(kept_.begin(), kept_.end(), is_of_size) < kMostInFlight) {
      kept_.reserve(kept_.size() + live_.size() + 1);  // FreeBlock must not throw
      const Block block = NewBlock(bytes);
      if (block.memory != nullptr) live_[block.memory] = block;
      return block.memory;
    }
    chosen = std::find_if(kept_.begin(), kept_.end(), is_of_size);
    LS_CUDA(cudaEventSynchronize(chosen->uploaded));
  }
  const Block block = *chosen;
  live_[block.memory] = block;
  kept_.erase(chosen);
  return block.memory;
}

void PageLockedAllocator::FreeBlock(void* block, int64_t) {
  std::lock_guard lock(blocks_mutex_);
  const auto found = live_.find(static_cast<std::byte*>(block));
  CHECK(found != live_.end());
  kept_.push_back(found->second);
  live_.erase(found);
}

void PageLockedAllocator::Upload(const void* host, void* device, int64_t bytes) {
  if (bytes == 0) return;
  const auto* const from = static_cast<const std::byte*>(host);
  context_.MakeCurrent();
  std::lock_guard lock(blocks_mutex_);
  const auto next = live_.upper_bound(from);
  CHECK(next != live_.begin()) << "an upload from memory that is not this allocator's";
  const Block& block = std::prev(next)->second;
  CHECK_LE(from + bytes, block.memory + block.bytes);
  const cudaStream_t stream = context_.copy_stream();
  LS_CUDA(
      cudaMemcpyAsync(device, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream));
  LS_CUDA(cudaEventRecord(block.uploaded, stream));
  LS_CUDA(cudaStreamWaitEvent(context_.stream(), block.uploaded));
}

int64_t PageLockedAllocator::page_locked_bytes() const {
  std::lock_guard lock(blocks_mutex_);
  int64_t bytes = 0;
  for (const auto& [memory, block] : live_) bytes += block.bytes;
  for (const Block& block : kept_) bytes += block.bytes;
  return bytes;
}

}  // namespace lockstep
