// Kernels that compute in fp32 alone take tensors of other floating dtypes as fp32 copies in
// workspace, whole, and round what they give.

#pragma once

#include <initializer_list>

#include "core/kernels/kernels.h"

namespace lockstep::cpu {

// Whether all that are defined are fp32.
bool AllF32(std::initializer_list<const Tensor*> tensors);

// The tensor itself where it is fp32 or undefined, else a copy of it in fp32.
Tensor Wide(Kernels& kernels, const Tensor& x);

// An output in fp32: the tensor itself, or a stand-in that Round brings into it. To accumulate, it
// starts as what the tensor holds.
class WideOutput {
 public:
  WideOutput(Kernels& kernels, const Tensor& out, Write write = Write::kOverwrite);

  const Tensor& tensor() const { return wide_; }
  void Round();

 private:
  Kernels& kernels_;
  Tensor out_, wide_;
};

}  // namespace lockstep::cpu
