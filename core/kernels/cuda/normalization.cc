// Batch and layer normalisation.

#include <initializer_list>

#include "core/cuda/error.h"
#include "core/kernels/cuda/batch_norms.h"
#include "core/kernels/cuda/batch_statistics.h"
#include "core/kernels/cuda/column_sums.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "core/kernels/cuda/elementwise.h"
#include "core/kernels/cuda/layer_norm.h"
#include "core/kernels/cuda/rms_norm.h"
#include "core/kernels/cuda/span.h"
#include "glog/logging.h"

namespace lockstep {

using cuda::Of;

namespace {

// The tensor itself where it is fp32, else a copy of it in fp32.
Tensor Wide(Kernels& kernels, const Tensor& x) {
  if (x.dtype() == DType::kF32) return x;
  Tensor wide = kernels.Empty(x.shape(), DType::kF32, MemoryClass::kWorkspace);
  kernels.Cast(x, wide);
  return wide;
}

// y = activation(y + residual). In 16 bits, y has been rounded before.
cudaError_t Finish(cudaStream_t stream, const Tensor& residual, Activation activation,
                   const Tensor& y) {
  const int64_t elements = y.elements();
  if (activation == Activation::kNone) {
    if (!residual.defined()) return cudaSuccess;
    return cuda::Add(stream, elements, Of(y), Of(residual), Of(y));
  }
  if (!residual.defined()) return cuda::Relu(stream, elements, Of(y), Of(y));
  return cuda::AddRelu(stream, elements, Of(y), Of(residual), Of(y));
}

// Kernels read all of these, of which some may be undefined, as elements of the dtype.
void CheckDtype(DType dtype, std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* tensor : tensors) {
    CHECK(!tensor->defined() || tensor->dtype() == dtype)
        << Name(tensor->dtype()) << " beside " << Name(dtype);
  }
}

// Where two sums a column are left behind the scratch that they needed.
double* SumsIn(const Tensor& scratch, int64_t width) {
  return scratch.data<double>() + 2 * cuda::kRowParts * width;
}

}  // namespace

Tensor CudaKernels::BatchNorm(const Tensor& x, const Tensor& scale, const Tensor& shift,
                              const Tensor& residual, float epsilon, Activation activation,
                              const Tensor& y, const Tensor& mean, const Tensor& variance) {
  Span span(this);
  CHECK_EQ(scale.elements(), x.shape()[-1]);
  // cuDNN leaves the inverse standard deviation where the variance goes.
  Tensor kept = batch_norms_->Forward(allocator_, x, Wide(*this, scale), Wide(*this, shift),
                                      epsilon, y, mean, variance);
  float* const spread = variance.data<float>();
  LS_CUDA(cuda::Variances(stream(), variance.elements(), spread, epsilon, spread));
  LS_CUDA(Finish(stream(), residual, activation, y));
  return kept;
}

void CudaKernels::BatchNormInference(const Tensor& x, const Tensor& scale, const Tensor& shift,
                                     const Tensor& residual, const Tensor& mean,
                                     const Tensor& variance, float epsilon, Activation activation,
                                     const Tensor& y) {
  Span span(this);
  batch_norms_->Inference(x, Wide(*this, scale), Wide(*this, shift), mean, variance, epsilon, y);
  LS_CUDA(Finish(stream(), residual, activation, y));
}

void CudaKernels::BatchNormBackward(const Tensor& x, const Tensor& scale, const Tensor& mean,
                                    const Tensor& variance, const Tensor& kept, float epsilon,
                                    const Tensor& y, const Tensor& dy, const Tensor& dx,
                                    const Tensor& dresidual, Write write, const Tensor& dscale,
                                    const Tensor& dshift) {
  Span span(this);
  // The gradient behind the activation is the residual's as it is. It is dy or zero: storing it
  // rounds nothing.
  Tensor slopes = dy;
  if (y.defined()) {
    slopes =
        dresidual.defined() ? dresidual : Empty(dy.shape(), dy.dtype(), MemoryClass::kWorkspace);
    ReluBackward(y, dy, slopes);
  } else if (dresidual.defined()) {
    Copy(dy, dresidual);
  }
  const Tensor inverse_stddev = Workspace(variance.shape());
  LS_CUDA(cuda::InverseStddevs(stream(), variance.elements(), variance.data<float>(), epsilon,
                               inverse_stddev.data<float>()));
  // cuDNN gives both gradients, in fp32, and can add them to what is there.
  const auto is_direct = [](const Tensor& gradient) {
    return gradient.defined() && gradient.dtype() == DType::kF32;
  };
  const bool direct = is_direct(dscale) && is_direct(dshift);
  const Tensor scale_sums = direct ? dscale : Workspace(variance.shape());
  const Tensor shift_sums = direct ? dshift : Workspace(variance.shape());
  batch_norms_->Backward(allocator_, x, Wide(*this, scale), mean, inverse_stddev, kept, epsilon,
                         slopes, dx, direct ? write : Write::kOverwrite, scale_sums, shift_sums);
  if (direct) return;
  const auto give = [&](const Tensor& sums, const Tensor& gradient) {
    if (!gradient.defined()) return;
    write == Write::kAccumulate ? Add(gradient, sums, gradient) : Cast(sums, gradient);
  };
  give(scale_sums, dscale);
  give(shift_sums, dshift);
}

void CudaKernels::AddStatistics(const Tensor& mean, const Tensor& variance, float weight,
                                Write write, const Tensor& sums) {
  Span span(this);
  CHECK_EQ(sums.elements(), 3 * mean.elements());
  LS_CUDA(cuda::AddStatistics(stream(), mean.elements(), mean.data<float>(), variance.data<float>(),
                              weight, write, sums.data<float>()));
}

void CudaKernels::UpdateRunningStatistics(const Tensor& sums, double weight, int64_t rows,
                                          float momentum, const Tensor& running_mean,
                                          const Tensor& running_variance) {
  Span span(this);
  const int64_t channels = running_mean.elements();
  const bool has_squares = sums.elements() == 3 * channels;
  CHECK(has_squares || sums.elements() == 2 * channels);
  LS_CUDA(cuda::UpdateRunningStatistics(stream(), channels, sums.data<float>(), has_squares, weight,
                                        rows, momentum, running_mean.data<float>(),
                                        running_variance.data<float>()));
}

void CudaKernels::LayerNorm(const Tensor& x, const Tensor& scale, const Tensor& shift,
                            float epsilon, const Tensor& y, const Tensor& mean,
                            const Tensor& inverse_stddev) {
  Span span(this);
  CheckDtype(x.dtype(), {&scale, &shift, &y});
  LS_CUDA(cuda::LayerNorm(stream(), x.shape().rows(), x.shape()[-1], Of(x), Of(scale), Of(shift),
                          epsilon, Of(y), mean.data<float>(), inverse_stddev.data<float>()));
}

void CudaKernels::LayerNormBackward(const Tensor& x, const Tensor& scale, const Tensor& mean,
                                    const Tensor& inverse_stddev, const Tensor& dy,
                                    const Tensor& residual, const Tensor& dx, Write write,
                                    const Tensor& dscale, const Tensor& dshift) {
  Span span(this);
  CheckDtype(x.dtype(), {&scale, &dy, &residual, &dx});
  const int64_t width = x.shape()[-1];
  const cuda::LayerNormInputs inputs = {.rows = x.shape().rows(),
                                        .width = width,
                                        .x = Of(x),
                                        .scale = Of(scale),
                                        .mean = mean.data<float>(),
                                        .inverse_stddev = inverse_stddev.data<float>(),
                                        .dy = Of(dy)};
  if (!dscale.defined() && !dshift.defined()) {
    LS_CUDA(cuda::LayerNormInputGradient(stream(), inputs, Of(residual), Of(dx)));
    return;
  }
  const Tensor scratch = Workspace({cuda::ColumnScratch(width)}, DType::kF64);
  double* const sums = SumsIn(scratch, width);
  LS_CUDA(cuda::LayerNormGradients(stream(), inputs, Of(residual), Of(dx), scratch.data<double>(),
                                   sums));
  if (dscale.defined()) LS_CUDA(cuda::WriteSums(stream(), width, sums, write, Of(dscale)));
  if (dshift.defined()) LS_CUDA(cuda::WriteSums(stream(), width, sums + width, write, Of(dshift)));
}

void CudaKernels::RmsNorm(const Tensor& x, const Tensor& scale, float epsilon, const Tensor& y,
                          const Tensor& inverse_rms) {
  Span span(this);
  LS_CUDA(cuda::RmsNorm(stream(), x.shape().rows(), x.shape()[-1], Of(x), Of(scale), epsilon, Of(y),
                        inverse_rms.data<float>()));
}

void CudaKernels::RmsNormBackward(const Tensor& x, const Tensor& scale, const Tensor& inverse_rms,
                                  const Tensor& dy, const Tensor& residual, const Tensor& dx,
                                  Write write, const Tensor& dscale) {
  Span span(this);
  const int64_t width = x.shape()[-1];
  const cuda::RmsNormInputs inputs = {.rows = x.shape().rows(),
                                      .width = width,
                                      .x = Of(x),
                                      .scale = Of(scale),
                                      .inverse_rms = inverse_rms.data<float>(),
                                      .dy = Of(dy)};
  LS_CUDA(cuda::RmsNormInputGradient(stream(), inputs, Of(residual), Of(dx)));
  if (!dscale.defined()) return;
  const Tensor scratch = Workspace({cuda::ColumnScratch(width)}, DType::kF64);
  double* const sums = SumsIn(scratch, width);
  LS_CUDA(cuda::RmsNormSums(stream(), inputs, scratch.data<double>(), sums));
  LS_CUDA(cuda::WriteSums(stream(), width, sums, write, Of(dscale)));
}

}  // namespace lockstep
