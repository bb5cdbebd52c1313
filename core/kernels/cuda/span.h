#pragma once

#include "core/base/clock.h"
#include "core/kernels/cuda/cuda_kernels.h"

namespace lockstep {

// Books the time of a kernel call; of nested ones only the outermost counts. Makes the rank's GPU
// the calling thread's.
class CudaKernels::Span {
 public:
  explicit Span(CudaKernels* kernels) : kernels_(kernels) {
    if (kernels_->depth_ == 0) {
      kernels_->context_.MakeCurrent();
      start_nanos_ = NowNanos();
    }
    ++kernels_->depth_;
  }
  ~Span() {
    if (--kernels_->depth_ == 0) kernels_->busy_nanos_ += NowNanos() - start_nanos_;
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  CudaKernels* kernels_;
  int64_t start_nanos_ = 0;
};

namespace cuda {

// The elements of a tensor; null where it is undefined.
inline Array Of(const Tensor& tensor) {
  return tensor.defined() ? Array{tensor.raw(), tensor.dtype()} : Array{};
}

}  // namespace cuda
}  // namespace lockstep
