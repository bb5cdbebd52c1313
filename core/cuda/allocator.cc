#include "core/cuda/allocator.h"

#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"  // FormatBytes
#include "core/cuda/error.h"

namespace lockstep {

CudaAllocator::CudaAllocator(CudaContext& context) : context_(context) {
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;  // the only kind that pools have
  properties.location = {};
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = context.ordinal();
  LS_CUDA(cudaMemPoolCreate(&pool_, &properties));
  uint64_t keep = std::numeric_limits<uint64_t>::max();
  LS_CUDA(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep));
}

CudaAllocator::~CudaAllocator() { cuda::LogError(cudaMemPoolDestroy(pool_), "cudaMemPoolDestroy"); }

void* CudaAllocator::AllocateBlock(int64_t bytes) { return AllocateOn(context_.stream(), bytes); }

void* CudaAllocator::AllocateUploadBlock(int64_t bytes) {
  return AllocateOn(context_.copy_stream(), bytes);
}

void* CudaAllocator::AllocateOn(cudaStream_t stream, int64_t bytes) {
  context_.MakeCurrent();
  const auto allocate = [&](void** block) {
    return cudaMallocFromPoolAsync(block, static_cast<size_t>(bytes), pool_, stream);
  };
  void* block = nullptr;
  cudaError_t error = allocate(&block);
  if (error == cudaErrorMemoryAllocation) {
    // What the pool keeps may be in pieces that do not serve; the driver can make one of them.
    static_cast<void>(cudaGetLastError());
    context_.Synchronize();
    LS_CUDA(cudaMemPoolTrimTo(pool_, 0));
    error = allocate(&block);
    if (error == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      return nullptr;
    }
  }
  LS_CUDA(error);
  return block;
}

void CudaAllocator::FreeBlock(void* block, int64_t) {
  // Called from destructors.
  cuda::LogError(cudaFreeAsync(block, context_.stream()), "cudaFreeAsync");
}

std::string CudaAllocator::Room() const {
  size_t free = 0, total = 0;
  context_.MakeCurrent();
  LS_CUDA(cudaMemGetInfo(&free, &total));
  return absl::StrCat("and GPU ", context_.ordinal(), " has ",
                      FormatBytes(static_cast<int64_t>(free)), " free of ",
                      FormatBytes(static_cast<int64_t>(total)));
}

}  // namespace lockstep
