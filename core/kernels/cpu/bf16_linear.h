// Linear layers in bf16: the kernels of the same names (kernels.h) for bf16 operands, on processors
// that multiply them (Bf16Products::Supported). As in fp32 the rows are cut into tiles, one thread
// each, and whatever surrounds a product meets its tile in the second-level cache. Sums are in
// fp32; a result is rounded once, and so are the hidden values of GeluNetwork and their gradients.

#pragma once

#include "core/kernels/cpu/bf16_product.h"
#include "core/kernels/kernels.h"

namespace lockstep::cpu {

void LinearBf16(Kernels& kernels, Bf16Products& products, const Tensor& x, const Tensor& w,
                const Tensor& bias, const Tensor& residual, const Tensor& y);

void LinearBackwardBf16(Kernels& kernels, Bf16Products& products, const Tensor& dy, const Tensor& x,
                        const Tensor& w, Write write, const Tensor& dx, const Tensor& dw,
                        const Tensor& dbias);

void GeluNetworkBf16(Kernels& kernels, Bf16Products& products, const Tensor& x, const Tensor& up,
                     const Tensor& up_bias, const Tensor& down, const Tensor& down_bias,
                     const Tensor& residual, const Tensor& pre, const Tensor& y);

void GeluNetworkBackwardBf16(Kernels& kernels, Bf16Products& products, const Tensor& x,
                             const Tensor& pre, const Tensor& up, const Tensor& down,
                             const Tensor& dy, Write write,
                             const Kernels::GeluNetworkGradients& gradients);

}  // namespace lockstep::cpu
