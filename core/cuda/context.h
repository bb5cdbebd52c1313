#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "cuda_runtime_api.h"

namespace lockstep {

// What a rank has of its GPU: the device; the stream on which its kernels, its memory and most of
// its copies have one order; and a second stream for uploads that go on beside kernels. Ranks that
// share a GPU have a context each.
class CudaContext {
 public:
  // The context of GPU `ordinal`; Unavailable, with what to do, where there is none that serves.
  static absl::StatusOr<std::unique_ptr<CudaContext>> Create(int ordinal);

  // Waits for what is queued.
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  int ordinal() const { return ordinal_; }
  cudaStream_t stream() const { return stream_; }
  // The stream of uploads from page-locked memory (page_locked_allocator.h), which wait for no
  // kernels.
  cudaStream_t copy_stream() const { return copy_stream_; }

  // Makes the GPU that of the calling thread: CUDA remembers one for each thread, and starts with
  // the first.
  void MakeCurrent() const;

  // Waits for what is queued on stream(); reports what went wrong in it.
  void Synchronize() const;

 private:
  CudaContext(int ordinal, cudaStream_t stream, cudaStream_t copy_stream)
      : ordinal_(ordinal), stream_(stream), copy_stream_(copy_stream) {}

  const int ordinal_;
  const cudaStream_t stream_, copy_stream_;
};

}  // namespace lockstep
