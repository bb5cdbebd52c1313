// Linear layers, the MLP of a transformer, and plain matrix products.

#include "core/kernels/cuda/cuda_kernels.h"
#include "core/kernels/cuda/matrix_products.h"
#include "core/kernels/cuda/span.h"
#include "glog/logging.h"

namespace lockstep {

using cuda::Epilogue;
using cuda::MatrixProducts;

void CudaKernels::MatMul(const Tensor& a, Transpose transpose_a, const Tensor& b,
                         Transpose transpose_b, Write write, const Tensor& c) {
  Span span(this);
  const int64_t k = transpose_a == Transpose::kYes ? a.shape().rows() : a.shape()[-1];
  const bool adds = write == Write::kAccumulate;
  if (k == 0) {  // a sum of no terms, which cuBLASLt refuses
    if (!adds) Fill(c, 0);
    return;
  }
  // What is added to 16 bits, and a product of fp16 to bf16, say, is made in fp32 first.
  const bool direct = c.dtype() == DType::kF32 || (c.dtype() == a.dtype() && !adds);
  const Tensor product = direct ? c : Workspace(c.shape());
  products_->Run(allocator_, {.m = c.shape().rows(),
                              .n = c.shape()[-1],
                              .k = k,
                              .a = a,
                              .transpose_a = transpose_a,
                              .b = b,
                              .transpose_b = transpose_b,
                              .addend = direct && adds ? c : Tensor(),
                              .c = product});
  if (direct) return;
  adds ? Add(c, product, c) : Cast(product, c);
}

void CudaKernels::Linear(const Tensor& x, const Tensor& w, const Tensor& bias,
                         const Tensor& residual, const Tensor& y) {
  Span span(this);
  const int64_t in = w.shape()[1], out = w.shape()[0];
  CHECK_EQ(x.shape()[-1], in);
  // Where cuBLASLt would round the sums before it adds what follows.
  const bool in_place = residual.defined() && residual.raw() == y.raw();
  if ((bias.defined() && !MatrixProducts::AddsBiasToSums(y.dtype(), out, in)) ||
      (in_place && y.dtype() != DType::kF32)) {
    const Tensor sums = Workspace(y.shape());
    Linear(x, w, Tensor(), Tensor(), sums);
    AddBias(sums, bias, residual, y);
    return;
  }
  products_->Run(allocator_, {.m = x.elements() / in,
                              .n = out,
                              .k = in,
                              .a = x,
                              .b = w,
                              .transpose_b = Transpose::kYes,
                              .addend = residual,
                              .c = y,
                              .epilogue = bias.defined() ? Epilogue::kBias : Epilogue::kNone,
                              .bias = bias});
}

void CudaKernels::LinearBackward(const Tensor& dy, const Tensor& x, const Tensor& w, Write write,
                                 const Tensor& dx, const Tensor& dw, const Tensor& dbias) {
  Span span(this);
  const int64_t in = w.shape()[1], out = w.shape()[0], rows = dy.elements() / out;
  CHECK_EQ(dy.elements(), rows * out);
  const Tensor slopes = dy.Reshape({rows, out});
  if (dx.defined()) {
    MatMul(slopes, Transpose::kNo, w, Transpose::kNo, Write::kOverwrite, dx.Reshape({rows, in}));
  }
  WeightGradients(slopes, dw.defined() ? x.Reshape({rows, in}) : Tensor(), write, dw, dbias);
}

void CudaKernels::WeightGradients(const Tensor& dy, const Tensor& x, Write write, const Tensor& dw,
                                  const Tensor& dbias) {
  if (dw.defined() && dbias.defined() && SumWithProduct(dy, x, write, dw, dbias)) return;
  if (dw.defined()) MatMul(dy, Transpose::kYes, x, Transpose::kNo, write, dw);
  if (dbias.defined()) ColumnSums(dy, write, dbias);
}

bool CudaKernels::SumWithProduct(const Tensor& dy, const Tensor& x, Write write, const Tensor& dw,
                                 const Tensor& dbias) {
  const int64_t rows = dy.shape().rows(), out = dw.shape()[0], in = dw.shape()[1];
  if (product_shapes_ != ProductShapes::kSame || rows == 0) return false;
  if (!MatrixProducts::MaySumA(dy.dtype(), out, in)) return false;
  if (dbias.dtype() != dw.dtype()) return false;
  if (dw.dtype() != dy.dtype() && dw.dtype() != DType::kF32) return false;
  // The library replaces the bias's gradient, and rounds its sums as it rounds dw: what is added to
  // a gradient of 16 bits would be rounded twice.
  const bool adds = write == Write::kAccumulate;
  if (adds && dw.dtype() != DType::kF32) return false;
  const Tensor sums = adds ? Workspace({out}) : dbias;
  const bool done = products_->TryRun(allocator_, {.m = out,
                                                   .n = in,
                                                   .k = rows,
                                                   .a = dy,
                                                   .transpose_a = Transpose::kYes,
                                                   .b = x,
                                                   .addend = adds ? dw : Tensor(),
                                                   .c = dw,
                                                   .epilogue = Epilogue::kSumsOfA,
                                                   .a_sums = sums});
  if (done && adds) Add(dbias, sums, dbias);
  return done;
}

void CudaKernels::GeluMlp(const Tensor& x, const Tensor& up, const Tensor& up_bias,
                          const Tensor& down, const Tensor& down_bias, const Tensor& residual,
                          const Tensor& pre, const Tensor& y) {
  Span span(this);
  const int64_t hidden = up.shape()[0], width = up.shape()[1], rows = x.elements() / width;
  CHECK_EQ(pre.elements(), rows * hidden);
  const Tensor gelu = Workspace({rows, hidden}, x.dtype());
  if (MatrixProducts::FusesGelu(x.dtype(), hidden, width)) {
    products_->Run(allocator_, {.m = rows,
                                .n = hidden,
                                .k = width,
                                .a = x,
                                .b = up,
                                .transpose_b = Transpose::kYes,
                                .c = gelu,
                                .epilogue = Epilogue::kBiasAndGelu,
                                .bias = up_bias,
                                .pre = pre});
  } else {
    Linear(x, up, up_bias, Tensor(), pre);
    Gelu(pre, gelu);
  }
  Linear(gelu, down, down_bias, residual, y);
}

// GELU stands before the product here, where cuBLASLt fuses nothing.
void CudaKernels::GeluLinear(const Tensor& pre, const Tensor& down, const Tensor& bias,
                             const Tensor& residual, const Tensor& y) {
  Span span(this);
  const Tensor gelu = Workspace(pre.shape(), pre.dtype());
  Gelu(pre, gelu);
  Linear(gelu, down, bias, residual, y);
}

void CudaKernels::GeluMlpBackward(const Tensor& x, const Tensor& pre, const Tensor& up,
                                  const Tensor& down, const Tensor& dy, Write write,
                                  const GeluMlpGradients& gradients) {
  Span span(this);
  const int64_t hidden = up.shape()[0], width = up.shape()[1], rows = x.elements() / width;
  const Tensor dpre = Workspace({rows, hidden}, dy.dtype());
  if (gradients.x.defined() || gradients.up.defined() || gradients.up_bias.defined()) {
    if (MatrixProducts::FusesGelu(dy.dtype(), hidden, width)) {
      products_->Run(allocator_, {.m = rows,
                                  .n = hidden,
                                  .k = width,
                                  .a = dy,
                                  .b = down,
                                  .c = dpre,
                                  .epilogue = Epilogue::kGeluSlope,
                                  .pre = pre});
    } else {
      const Tensor dgelu = Workspace({rows, hidden});
      MatMul(dy.Reshape({rows, width}), Transpose::kNo, down, Transpose::kNo, Write::kOverwrite,
             dgelu);
      GeluBackward(pre, dgelu, dpre);
    }
  }
  LinearBackward(dpre, x, up, write, gradients.x, gradients.up, gradients.up_bias);
  Tensor gelu;
  if (gradients.down.defined()) {
    gelu = Workspace({rows, hidden}, dy.dtype());
    Gelu(pre, gelu);
  }
  WeightGradients(dy.Reshape({rows, width}), gelu, write, gradients.down, gradients.down_bias);
}

}  // namespace lockstep
