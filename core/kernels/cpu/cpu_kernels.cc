#include "core/kernels/cpu/cpu_kernels.h"

#include "core/base/announced_access.h"
#include "core/base/parallel.h"
#include "core/kernels/cpu/bf16_gemm.h"  // HasBf16Instructions
#include "core/kernels/cpu/convolution_primitive.h"
#include "core/kernels/cpu/span.h"
#include "dnnl.hpp"

namespace lockstep {

CpuKernels::CpuKernels(Allocator& allocator, InstructionSet instructions)
    : allocator_(allocator),
      instructions_(instructions),
      primitives_(std::make_unique<cpu::ConvolutionPrimitives>()) {}

CpuKernels::~CpuKernels() = default;

bool CpuKernels::LimitLibraries(InstructionSet instructions) {
  if (instructions == InstructionSet::kAvx512) return true;
  // Refused once oneDNN has compiled a kernel.
  dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
  const auto used = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (used & ~static_cast<unsigned>(dnnl::cpu_isa::avx2)) == 0;
}

bool CpuKernels::MultipliesBf16(const Tensor& x) const {
  if (x.dtype() != DType::kBF16 || instructions_ != InstructionSet::kAvx512 ||
      !cpu::HasBf16Instructions()) {
    return false;
  }
  // Convolutions are oneDNN's, which can be told to use less than the processor has
  // (ONEDNN_MAX_CPU_ISA) and then emulates bf16, slower than fp32.
  constexpr int kNeeded = static_cast<int>(dnnl::cpu_isa::avx512_core_bf16);
  return (static_cast<int>(dnnl::get_effective_cpu_isa()) & kNeeded) == kNeeded;
}

void CpuKernels::Span::Announce(absl::Span<const TensorRef> read,
                                absl::Span<const TensorRef> written) {
  if (SkipsLoops()) return;
  for (const Tensor& tensor : read) {
    if (tensor.defined()) AnnounceRead(tensor.raw(), tensor.bytes());
  }
  for (const Tensor& tensor : written) {
    if (tensor.defined()) AnnounceWrite(tensor.raw(), tensor.bytes());
  }
}

}  // namespace lockstep
