#include "core/kernels/cpu/wide.h"

#include <algorithm>

namespace lockstep::cpu {
namespace {

bool IsF32(const Tensor& x) { return !x.defined() || x.dtype() == DType::kF32; }

}  // namespace

bool AllF32(std::initializer_list<const Tensor*> tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const Tensor* x) { return IsF32(*x); });
}

Tensor Wide(Kernels& kernels, const Tensor& x) {
  if (IsF32(x)) return x;
  Tensor wide = kernels.Empty(x.shape(), DType::kF32, MemoryClass::kWorkspace);
  kernels.Cast(x, wide);
  return wide;
}

WideOutput::WideOutput(Kernels& kernels, const Tensor& out, Write write)
    : kernels_(kernels), out_(out), wide_(out) {
  if (IsF32(out)) return;
  wide_ = write == Write::kAccumulate
              ? Wide(kernels, out)
              : kernels.Empty(out.shape(), DType::kF32, MemoryClass::kWorkspace);
}

void WideOutput::Round() {
  if (!IsF32(out_)) kernels_.Cast(wide_, out_);
}

}  // namespace lockstep::cpu
