// Convolutions, by cuDNN; pooling and its opposite.

#include "core/cuda/error.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "core/kernels/cuda/cudnn_convolutions.h"
#include "core/kernels/cuda/pooling.h"
#include "core/kernels/cuda/span.h"
#include "core/kernels/cuda/upsample.h"
#include "core/kernels/cuda/weight_gradient_graph.h"
#include "glog/logging.h"

namespace lockstep {

using cuda::ImagesOf;
using cuda::Of;
using Pass = cuda::CudnnConvolutions::Pass;

namespace {

void CheckUpsampled(const Shape& small, const Shape& large) {
  CHECK_EQ(large, Shape({small[0], 2 * small[1], 2 * small[2], small[3]}));
}

cuda::Pooling PoolingOf(const Tensor& x, const Window& window, const Tensor& y) {
  CHECK(0 <= window.padding && window.padding < window.kernel &&
        window.kernel <= cuda::kWidestPooling)
      << "windows of " << window.kernel << " with a padding of " << window.padding;
  CHECK_EQ(y.shape(), Shape({x.shape()[0], window.Output(x.shape()[1]), window.Output(x.shape()[2]),
                             x.shape()[3]}));
  return {.in = ImagesOf(x),
          .out = ImagesOf(y),
          .kernel = window.kernel,
          .stride = window.stride,
          .padding = window.padding};
}

}  // namespace

void CudaKernels::Convolution(const Tensor& x, const Tensor& w, const Tensor& bias,
                              const Window& window, const Tensor& y) {
  Span span(this);
  CHECK_EQ(x.shape()[-1], w.shape()[-1]);
  CHECK_EQ(y.shape()[1], window.Output(x.shape()[1]));
  if (convolutions_->Run(allocator_, Pass::kForward, window, x, w, bias, y)) return;
  if (y.dtype() == DType::kF32) return AddBias(y, bias, Tensor(), y);
  // What it has left is rounded to 16 bits.
  const Tensor wide_x = Workspace(x.shape()), wide_w = Workspace(w.shape());
  const Tensor sums = Workspace(y.shape());
  Cast(x, wide_x);
  Cast(w, wide_w);
  CHECK(convolutions_->Run(allocator_, Pass::kForward, window, wide_x, wide_w, Tensor(), sums));
  AddBias(sums, bias, Tensor(), y);
}

void CudaKernels::ConvolutionBackwardInput(const Tensor& dy, const Tensor& w, const Window& window,
                                           const Tensor& dx) {
  Span span(this);
  CHECK(convolutions_->Run(allocator_, Pass::kBackwardInput, window, dx, w, Tensor(), dy));
}

void CudaKernels::ConvolutionBackwardWeight(const Tensor& dy, const Tensor& x, const Window& window,
                                            Write write, const Tensor& dw, const Tensor& dbias) {
  Span span(this);
  if (dbias.defined()) ColumnSums(dy, write, dbias);
  const bool direct = write == Write::kOverwrite && dw.dtype() == DType::kF32;
  const Tensor fresh = direct ? dw : Workspace(dw.shape());
  if (dy.dtype() == DType::kF32) {
    CHECK(convolutions_->Run(allocator_, Pass::kBackwardWeight, window, x, fresh, Tensor(), dy));
  } else if (!weight_gradients_->Run(allocator_, window, x, dy, fresh)) {
    // cuDNN's older calls write the gradient in its operands' dtype; ours is a sum in fp32.
    const Tensor wide_dy = Workspace(dy.shape()), wide_x = Workspace(x.shape());
    Cast(dy, wide_dy);
    Cast(x, wide_x);
    CHECK(convolutions_->Run(allocator_, Pass::kBackwardWeightOfWidened, window, wide_x, fresh,
                             Tensor(), wide_dy));
  }
  if (direct) return;
  write == Write::kAccumulate ? Add(dw, fresh, dw) : Cast(fresh, dw);
}

void CudaKernels::MaxPool(const Tensor& x, const Window& window, const Tensor& y) {
  Span span(this);
  LS_CUDA(cuda::MaxPool(stream(), PoolingOf(x, window, y), Of(x), Of(y)));
}

void CudaKernels::MaxPoolBackward(const Tensor& x, const Window& window, const Tensor& y,
                                  const Tensor& dy, const Tensor& dx) {
  Span span(this);
  const Tensor places = Workspace(y.shape(), DType::kU8);
  LS_CUDA(cuda::MaxPoolBackward(stream(), PoolingOf(x, window, y), Of(x), places.data<uint8_t>(),
                                Of(dy), Of(dx)));
}

void CudaKernels::GlobalAveragePool(const Tensor& x, const Tensor& y) {
  Span span(this);
  LS_CUDA(cuda::GlobalAveragePool(stream(), ImagesOf(x), Of(x), Of(y)));
}

void CudaKernels::GlobalAveragePoolBackward(const Tensor& dy, const Tensor& dx) {
  Span span(this);
  LS_CUDA(cuda::GlobalAveragePoolBackward(stream(), ImagesOf(dx), Of(dy), Of(dx)));
}

void CudaKernels::Upsample(const Tensor& x, const Tensor& y) {
  Span span(this);
  CheckUpsampled(x.shape(), y.shape());
  LS_CUDA(cuda::Upsample(stream(), ImagesOf(x), Of(x), Of(y)));
}

void CudaKernels::UpsampleBackward(const Tensor& dy, const Tensor& dx) {
  Span span(this);
  CheckUpsampled(dx.shape(), dy.shape());
  LS_CUDA(cuda::UpsampleBackward(stream(), ImagesOf(dx), Of(dy), Of(dx)));
}

}  // namespace lockstep
