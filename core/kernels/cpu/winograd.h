// Convolutions of 3x3 windows with stride 1 and padding 1 by Winograd's F(4x4, 3x3), which needs a
// quarter of the multiplications. Products run on the microkernel of tile_gemm.h in fp32, whatever
// the dtype of the tensors: 16-bit elements are converted on their way into the first transform and
// out of the last one.
//
// The bits of an output depend on its sample and the weights alone, those of a weight's gradient on
// the samples of the call alone: not on threads, nor on the processor.

#pragma once

#include "core/kernels/cpu/cpu_kernels.h"

namespace lockstep::cpu {

// Whether Winograd's transforms pay for a layer. They mix the elements of a tile, so that an error
// is as large as the tile's largest element allows: some ten times that of the direct sum, about
// 1e-6 of the largest output.
bool WinogradPays(const Window& window, int64_t in, int64_t out);

// y [batch, height, width, out] = the convolution of x [batch, height, width, in] with w [out, 3,
// 3, in], plus bias [out] (may be undefined); all of any floating dtype.
void WinogradForward(CpuKernels& kernels, const Tensor& x, const Tensor& w, const Tensor& bias,
                     const Tensor& y);
// dx from dy, shaped as x and y.
void WinogradBackwardInput(CpuKernels& kernels, const Tensor& dy, const Tensor& w,
                           const Tensor& dx);
// dw [out, 3, 3, in] (fp32) = the gradient, summed over leaves of a fixed number of samples.
void WinogradBackwardWeight(CpuKernels& kernels, const Tensor& dy, const Tensor& x,
                            const Tensor& dw);

}  // namespace lockstep::cpu
