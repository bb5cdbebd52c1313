// What ranks need that compute a layer together: what follows a sum over ranks, columns that come
// from several, and the steps of a cross entropy between which they reduce.

#include "core/cuda/error.h"
#include "core/kernels/cuda/add_bias.h"
#include "core/kernels/cuda/column_sums.h"
#include "core/kernels/cuda/cross_entropy.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "core/kernels/cuda/span.h"
#include "glog/logging.h"

namespace lockstep {

using cuda::Of;

namespace {

cuda::SplitLogits Split(const Tensor& logits, const Range& classes) {
  return {.rows = logits.shape().rows(),
          .columns = logits.shape()[-1],
          .logits = Of(logits),
          .first = classes.first,
          .count = classes.count};
}

}  // namespace

void CudaKernels::CopyColumns(const Tensor& x, int64_t first, int64_t count, const Tensor& y,
                              int64_t from) {
  Span span(this);
  CHECK(x.dtype() == y.dtype()) << Name(x.dtype()) << " to " << Name(y.dtype());
  CHECK_EQ(x.shape().rows(), y.shape().rows());
  const int64_t size = SizeOf(x.dtype());
  const int64_t x_row = x.shape()[-1] * size, y_row = y.shape()[-1] * size;
  CHECK_LE((first + count) * size, x_row);
  CHECK_LE((from + count) * size, y_row);
  if (count == 0 || x.elements() == 0) return;
  LS_CUDA(cudaMemcpy2DAsync(y.raw() + from * size, y_row, x.raw() + first * size, x_row,
                            count * size, x.shape().rows(), cudaMemcpyDeviceToDevice, stream()));
}

void CudaKernels::AddBias(const Tensor& x, const Tensor& bias, const Tensor& residual,
                          const Tensor& y) {
  Span span(this);
  LS_CUDA(cuda::AddBias(stream(), x.shape().rows(), x.shape()[-1], Of(x), Of(bias), Of(residual),
                        Of(y)));
}

void CudaKernels::ColumnSums(const Tensor& x, Write write, const Tensor& sums) {
  Span span(this);
  const int64_t width = sums.elements();
  const Tensor scratch = Workspace({cuda::ColumnScratch(width)}, DType::kF64);
  LS_CUDA(cuda::ColumnSums(stream(), x.elements() / width, width, Of(x), scratch.data<double>(),
                           write, Of(sums)));
}

void CudaKernels::LargestLogits(const Tensor& logits, const Range& classes, const Tensor& largest,
                                const Tensor& where) {
  Span span(this);
  LS_CUDA(cuda::LargestLogits(stream(), Split(logits, classes), largest.data<float>(),
                              where.defined() ? where.data<int32_t>() : nullptr));
}

void CudaKernels::SumExponentials(const Tensor& logits, const Range& classes, const Tensor& largest,
                                  const Tensor& targets, const Tensor& sums, const Tensor& gaps) {
  Span span(this);
  CHECK_EQ(targets.elements(), logits.shape().rows());
  LS_CUDA(cuda::SumExponentials(stream(), Split(logits, classes), largest.data<float>(),
                                targets.data<int32_t>(), sums.data<float>(), gaps.data<float>()));
}

void CudaKernels::SplitCrossEntropy(const Tensor& logits, const Range& classes,
                                    const Tensor& largest, const Tensor& sums, const Tensor& gaps,
                                    const Tensor& targets, float factor, const Tensor& losses,
                                    const Tensor& dlogits) {
  Span span(this);
  LS_CUDA(cuda::SplitCrossEntropy(stream(), Split(logits, classes), largest.data<float>(),
                                  sums.data<float>(), gaps.data<float>(), targets.data<int32_t>(),
                                  factor, losses.data<float>(), Of(dlogits)));
}

}  // namespace lockstep
