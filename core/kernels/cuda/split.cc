// What ranks need that compute a layer together: what follows a sum over ranks, and columns that
// come from several.

#include "core/cuda/error.h"
#include "core/kernels/cuda/add_bias.h"
#include "core/kernels/cuda/column_sums.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "core/kernels/cuda/span.h"
#include "glog/logging.h"

namespace lockstep {

using cuda::Of;

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

}  // namespace lockstep
