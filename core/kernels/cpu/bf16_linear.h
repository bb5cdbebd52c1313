// Linear layers in bf16: the kernels of the same names (kernels.h) for bf16 operands, on processors
// that multiply them (HasBf16Instructions). As in fp32 the rows are cut into tiles, one thread
// each, and whatever surrounds a product meets its tile in the second-level cache. Sums are in
// fp32; a result is rounded once, and so are the hidden values of GeluMlp and their gradients.
//
// No bit depends on the number of threads: an element of a product is one chain (bf16_gemm.h), and
// sums over rows are trees over leaves (weight_sum.h, leaf_sums.h).

#pragma once

#include "core/kernels/kernels.h"

namespace lockstep::cpu {

void LinearBf16(Kernels& kernels, const Tensor& x, const Tensor& w, const Tensor& bias,
                const Tensor& residual, const Tensor& y);

void LinearBackwardBf16(Kernels& kernels, const Tensor& dy, const Tensor& x, const Tensor& w,
                        Write write, const Tensor& dx, const Tensor& dw, const Tensor& dbias);

void GeluMlpBf16(Kernels& kernels, const Tensor& x, const Tensor& up, const Tensor& up_bias,
                 const Tensor& down, const Tensor& down_bias, const Tensor& residual,
                 const Tensor& pre, const Tensor& y);

void GeluMlpBackwardBf16(Kernels& kernels, const Tensor& x, const Tensor& pre, const Tensor& up,
                         const Tensor& down, const Tensor& dy, Write write,
                         const Kernels::GeluMlpGradients& gradients);

}  // namespace lockstep::cpu
