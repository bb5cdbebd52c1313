#include "core/kernels/cpu/cpu_kernels.h"

#include "core/kernels/cpu/bf16_product.h"
#include "core/kernels/cpu/convolution_piece.h"
#include "dnnl.hpp"

namespace lockstep {

CpuKernels::CpuKernels(Allocator& allocator, InstructionSet instructions)
    : allocator_(allocator),
      instructions_(instructions),
      pieces_(std::make_unique<cpu::ConvolutionPieces>()),
      bf16_products_(std::make_unique<cpu::Bf16Products>(allocator)) {}

CpuKernels::~CpuKernels() = default;

bool CpuKernels::LimitLibraries(InstructionSet instructions) {
  if (instructions == InstructionSet::kAvx512) return true;
  // Refused once oneDNN has compiled a kernel.
  dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
  const auto used = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (used & ~static_cast<unsigned>(dnnl::cpu_isa::avx2)) == 0;
}

bool CpuKernels::MultipliesBf16(const Tensor& x) const {
  return x.dtype() == DType::kBF16 && instructions_ == InstructionSet::kAvx512 &&
         cpu::Bf16Products::Supported();
}

}  // namespace lockstep
