#include "core/kernels/cpu/cpu_kernels.h"

#include "core/kernels/cpu/bf16_product.h"
#include "core/kernels/cpu/convolution_primitives.h"

namespace lockstep {

CpuKernels::CpuKernels(Allocator& allocator)
    : allocator_(allocator),
      convolutions_(std::make_unique<cpu::ConvolutionPrimitives>(allocator)),
      bf16_products_(std::make_unique<cpu::Bf16Products>(allocator)) {}

CpuKernels::~CpuKernels() = default;

bool CpuKernels::MultipliesBf16(const Tensor& x) {
  return x.dtype() == DType::kBF16 && cpu::Bf16Products::Supported();
}

}  // namespace lockstep
