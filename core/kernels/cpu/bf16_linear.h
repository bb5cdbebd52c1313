// Linear layers in bf16: the kernels of the same names (kernels.h) for bf16 operands, on processors
// that multiply them (HasBf16Instructions). As in fp32 the rows are cut into tiles, one thread
// each, and whatever surrounds a product meets its tile in the second-level cache. Sums are in
// fp32; a result, or a feature leaf of it, is rounded once, and so are the hidden values of GeluMlp
// and their gradients.
//
// No bit depends on the number of threads: an element of a product is one chain (bf16_gemm.h), and
// sums over rows are trees over leaves (weight_sum.h, leaf_sums.h).

#pragma once

#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/kernels.h"

namespace lockstep::cpu {

void LinearBf16(Kernels& kernels, const Tensor& x, const Tensor& w, const Tensor& bias,
                const Tensor& residual, const Tensor& y);

// The kernels "by leaves". All leaves have features, and those of an MLP one range each, which
// together are all of the hidden features. down_bias and residual are for one leaf.
void LinearByLeavesBf16(Kernels& kernels, const Tensor& x, const Tensor& w,
                        const FeatureLeaves& features, const Tensor& y);

void LinearBackwardBf16(Kernels& kernels, const Tensor& dy, const Tensor& x, const Tensor& w,
                        const FeatureLeaves& features, Write write, const Tensor& dx,
                        const Tensor& dw, const Tensor& dbias);

void GeluMlpBf16(CpuKernels& kernels, const Tensor& x, const Tensor& up, const Tensor& up_bias,
                 const Tensor& down, const Tensor& down_bias, const Tensor& residual,
                 const FeatureLeaves& features, const Tensor& pre, const Tensor& y);

void GeluMlpBackwardBf16(CpuKernels& kernels, const Tensor& x, const Tensor& pre, const Tensor& up,
                         const Tensor& down, const FeatureLeaves& features, const Tensor& dy,
                         Write write, const Kernels::GeluMlpGradients& gradients);

}  // namespace lockstep::cpu
