#pragma once

#include <cstdint>
#include <functional>  // std::reference_wrapper
#include <utility>

#include "absl/types/span.h"
#include "core/base/clock.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/kernel_call.h"

namespace lockstep {

// Books the time of a kernel call and reports the call to the observer, and the memory that it
// reads and writes to ThreadSanitizer, which does not see kernels' own accesses (.bazelrc). Only
// the outermost of nested calls counts. Every kernel begins with a Span.
class CpuKernels::Span {
 public:
  using TensorRef = std::reference_wrapper<const Tensor>;

  // The call's tensors, in the order of its parameters: those that it only reads, then those that
  // it writes. Some may be undefined. `leaves` is the number of leaves that are not empty.
  Span(CpuKernels* kernels, absl::Span<const TensorRef> read, absl::Span<const TensorRef> written,
       int64_t leaves = 1, const char* kernel = __builtin_FUNCTION())
      : kernels_(kernels) {
    if (kernels_->depth_++ > 0) return;
    if (kernels_->observer_ != nullptr) {
      KernelCall call = {.kernel = kernel, .leaves = leaves};
      call.tensors.reserve(read.size() + written.size());
      for (const Tensor& tensor : read) call.tensors.emplace_back(tensor);
      for (const Tensor& tensor : written) call.tensors.emplace_back(tensor);
      kernels_->observer_->OnKernel(std::move(call));
    }
    Announce(read, written);
    start_nanos_ = NowNanos();
  }
  ~Span() {
    if (--kernels_->depth_ > 0) return;
    const int64_t nanos = NowNanos() - start_nanos_;
    kernels_->busy_nanos_ += nanos;
    if (kernels_->observer_ != nullptr) kernels_->observer_->OnKernelEnd(nanos);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  static void Announce(absl::Span<const TensorRef> read, absl::Span<const TensorRef> written);

  CpuKernels* kernels_;
  int64_t start_nanos_ = 0;
};

}  // namespace lockstep
