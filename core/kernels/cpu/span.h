#pragma once

#include "core/base/clock.h"
#include "core/kernels/cpu/cpu_kernels.h"

namespace lockstep {

// Books the time of a kernel call, and its name where that is asked for; of nested ones only the
// outermost counts. Every kernel begins with one.
class CpuKernels::Span {
 public:
  explicit Span(CpuKernels* kernels, const char* kernel = __builtin_FUNCTION())
      : kernels_(kernels) {
    if (kernels_->depth_++ > 0) return;
    if (kernels_->calls_ != nullptr) kernels_->calls_->insert(kernel);
    start_nanos_ = NowNanos();
  }
  ~Span() {
    if (--kernels_->depth_ == 0) kernels_->busy_nanos_ += NowNanos() - start_nanos_;
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  CpuKernels* kernels_;
  int64_t start_nanos_ = 0;
};

}  // namespace lockstep
