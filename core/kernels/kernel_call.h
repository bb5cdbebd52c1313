// Calls of kernels as data: what a rehearsal notes instead of computing.

#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "core/tensor/tensor.h"

namespace lockstep {

// The dtype and shape of a tensor. An undefined tensor has shape [0].
struct TensorKind {
  DType dtype = DType::kF32;
  Shape shape = {0};

  TensorKind() = default;
  explicit TensorKind(const Tensor& tensor)
      : dtype(tensor.defined() ? tensor.dtype() : DType::kF32),
        shape(tensor.defined() ? tensor.shape() : Shape{0}) {}

  int64_t elements() const { return shape.elements(); }
  int64_t bytes() const { return elements() * SizeOf(dtype); }

  friend bool operator==(const TensorKind&, const TensorKind&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const TensorKind& kind) {
    return H::combine(std::move(state), kind.dtype, kind.shape.dims());
  }
};

// One call of a kernel, as far as its cost depends on the arguments.
struct KernelCall {
  const char* kernel = "";               // the member of Kernels, such as "Linear"; static storage
  std::vector<TensorKind> tensors = {};  // the call's tensors, in the order of its parameters
  int64_t leaves = 1;                    // number of feature or token leaves that are not empty

  friend bool operator==(const KernelCall& a, const KernelCall& b) {
    return absl::string_view(a.kernel) == b.kernel && a.tensors == b.tensors &&
           a.leaves == b.leaves;
  }
  template <typename H>
  friend H AbslHashValue(H state, const KernelCall& call) {
    return H::combine(std::move(state), absl::string_view(call.kernel), call.tensors, call.leaves);
  }
};

// Receives the kernel calls of one rank. Kernels that a kernel calls itself are not reported.
class KernelObserver {
 public:
  virtual ~KernelObserver() = default;
  // Runs before the kernel computes.
  virtual void OnKernel(KernelCall call) = 0;
  // Runs when the kernel has computed, which took `nanos` nanoseconds.
  virtual void OnKernelEnd(int64_t /*nanos*/) {}
};

}  // namespace lockstep
