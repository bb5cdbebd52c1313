// Batch and layer normalisation.

#include "core/cuda/error.h"
#include "core/kernels/cuda/batch_norm.h"
#include "core/kernels/cuda/column_sums.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "core/kernels/cuda/layer_norm.h"
#include "core/kernels/cuda/span.h"
#include "glog/logging.h"

namespace lockstep {

using cuda::Of;

namespace {

// Where two sums a column are left behind the scratch that they needed.
double* SumsIn(const Tensor& scratch, int64_t width) {
  return scratch.data<double>() + 2 * cuda::kRowParts * width;
}

}  // namespace

void CudaKernels::BatchNorm(const Tensor& x, const Tensor& scale, const Tensor& shift,
                            const Tensor& residual, float epsilon, Activation activation,
                            const Tensor& y, const Tensor& mean, const Tensor& variance) {
  Span span(this);
  const int64_t width = x.shape()[-1], rows = x.shape().rows();
  CHECK_EQ(scale.elements(), width);
  const Tensor scratch = Workspace({cuda::ColumnScratch(width)}, DType::kF64);
  LS_CUDA(cuda::BatchStatistics(stream(), rows, width, Of(x), scratch.data<double>(),
                                mean.data<float>(), variance.data<float>()));
  BatchNormInference(x, scale, shift, residual, mean, variance, epsilon, activation, y);
}

void CudaKernels::BatchNormInference(const Tensor& x, const Tensor& scale, const Tensor& shift,
                                     const Tensor& residual, const Tensor& mean,
                                     const Tensor& variance, float epsilon, Activation activation,
                                     const Tensor& y) {
  Span span(this);
  const int64_t width = x.shape()[-1], rows = x.shape().rows();
  const Tensor factors = Workspace({2, width});
  LS_CUDA(cuda::Normalize(stream(), rows, width, Of(x), Of(scale), Of(shift), Of(residual),
                          mean.data<float>(), variance.data<float>(), epsilon, activation,
                          factors.data<float>(), Of(y)));
}

void CudaKernels::BatchNormBackward(const Tensor& x, const Tensor& scale, const Tensor& mean,
                                    const Tensor& variance, float epsilon, const Tensor& y,
                                    const Tensor& dy, const Tensor& dx, const Tensor& dresidual,
                                    Write write, const Tensor& dscale, const Tensor& dshift) {
  Span span(this);
  const int64_t width = x.shape()[-1];
  // The gradient behind the activation goes to the residual as it is; without a residual of its own
  // it is kept in dx, which is then rewritten in place. It is dy or zero: storing it rounds
  // nothing.
  const Tensor& kept = dresidual.defined() ? dresidual : dx;
  CHECK(kept.dtype() == dy.dtype()) << Name(kept.dtype()) << " and " << Name(dy.dtype());
  const Tensor* slopes = &dy;
  if (y.defined()) {
    ReluBackward(y, dy, kept);
    slopes = &kept;
  } else if (dresidual.defined()) {
    Copy(dy, dresidual);
  }
  const cuda::BatchNormInputs inputs = {.rows = x.shape().rows(),
                                        .width = width,
                                        .x = Of(x),
                                        .scale = Of(scale),
                                        .mean = mean.data<float>(),
                                        .variance = variance.data<float>(),
                                        .epsilon = epsilon};
  const Tensor scratch = Workspace({cuda::ColumnScratch(width)}, DType::kF64);
  const Tensor factors = Workspace({3, width});
  double* const sums = SumsIn(scratch, width);
  LS_CUDA(cuda::BatchNormSums(stream(), inputs, Of(*slopes), scratch.data<double>(), sums));
  if (dscale.defined()) LS_CUDA(cuda::WriteSums(stream(), width, sums, write, Of(dscale)));
  if (dshift.defined()) LS_CUDA(cuda::WriteSums(stream(), width, sums + width, write, Of(dshift)));
  LS_CUDA(cuda::BatchNormInputGradient(stream(), inputs, Of(*slopes), sums, factors.data<float>(),
                                       Of(dx)));
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
  LS_CUDA(cuda::UpdateRunningStatistics(stream(), running_mean.elements(), sums.data<float>(),
                                        weight, rows, momentum, running_mean.data<float>(),
                                        running_variance.data<float>()));
}

void CudaKernels::LayerNorm(const Tensor& x, const Tensor& scale, const Tensor& shift,
                            float epsilon, const Tensor& y, const Tensor& mean,
                            const Tensor& inverse_stddev) {
  Span span(this);
  LS_CUDA(cuda::LayerNorm(stream(), x.shape().rows(), x.shape()[-1], Of(x), Of(scale), Of(shift),
                          epsilon, Of(y), mean.data<float>(), inverse_stddev.data<float>()));
}

void CudaKernels::LayerNormBackward(const Tensor& x, const Tensor& scale, const Tensor& mean,
                                    const Tensor& inverse_stddev, const Tensor& dy,
                                    const Tensor& residual, const Tensor& dx, Write write,
                                    const Tensor& dscale, const Tensor& dshift) {
  Span span(this);
  const int64_t width = x.shape()[-1];
  const cuda::LayerNormInputs inputs = {.rows = x.shape().rows(),
                                        .width = width,
                                        .x = Of(x),
                                        .scale = Of(scale),
                                        .mean = mean.data<float>(),
                                        .inverse_stddev = inverse_stddev.data<float>(),
                                        .dy = Of(dy)};
  LS_CUDA(cuda::LayerNormInputGradient(stream(), inputs, Of(residual), Of(dx)));
  if (!dscale.defined() && !dshift.defined()) return;
  const Tensor scratch = Workspace({cuda::ColumnScratch(width)}, DType::kF64);
  double* const sums = SumsIn(scratch, width);
  LS_CUDA(cuda::LayerNormSums(stream(), inputs, scratch.data<double>(), sums));
  if (dscale.defined()) LS_CUDA(cuda::WriteSums(stream(), width, sums, write, Of(dscale)));
  if (dshift.defined()) LS_CUDA(cuda::WriteSums(stream(), width, sums + width, write, Of(dshift)));
}

}  // namespace lockstep
