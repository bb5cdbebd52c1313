// Data movement and arithmetic element by element.

#include "core/kernels/cuda/elementwise.h"

#include "core/cuda/error.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "core/kernels/cuda/llama_elements.h"
#include "core/kernels/cuda/span.h"
#include "glog/logging.h"

namespace lockstep {

using cuda::Of;

namespace {

// The elements of y, which all inputs have too.
template <typename... Tensors>
int64_t Elements(const Tensor& y, const Tensors&... inputs) {
  CHECK(((inputs.elements() == y.elements()) && ...)) << "elements differ from " << y.shape();
  return y.elements();
}

}  // namespace

void CudaKernels::Fill(const Tensor& y, float value) {
  Span span(this);
  LS_CUDA(cuda::Fill(stream(), y.elements(), value, Of(y)));
}

void CudaKernels::Copy(const Tensor& x, const Tensor& y) {
  Span span(this);
  CHECK_EQ(x.bytes(), y.bytes());
  if (x.bytes() == 0) return;
  LS_CUDA(cudaMemcpyAsync(y.raw(), x.raw(), x.bytes(), cudaMemcpyDeviceToDevice, stream()));
}

void CudaKernels::Cast(const Tensor& x, const Tensor& y) {
  Span span(this);
  const int64_t elements = Elements(y, x);
  if (x.dtype() == y.dtype()) {
    Copy(x, y);
  } else if (y.dtype() == DType::kF64) {
    LS_CUDA(cuda::WidenToDouble(stream(), elements, x.data<float>(), y.data<double>()));
  } else if (x.dtype() == DType::kF64) {
    LS_CUDA(cuda::NarrowToFloat(stream(), elements, x.data<double>(), y.data<float>()));
  } else {
    LS_CUDA(cuda::Cast(stream(), elements, Of(x), Of(y)));
  }
}

void CudaKernels::CopyFromHost(const void* host, const Tensor& y) {
  Span span(this);
  staging_.ToDevice(host, y.raw(), y.bytes());
}

void CudaKernels::CopyToHost(const Tensor& x, void* host) {
  Span span(this);
  staging_.ToHost(x.raw(), host, x.bytes());
}

Tensor CudaKernels::Upload(const Tensor& host) {
  if (&host.allocator() != &page_locked_) return Kernels::Upload(host);
  Span span(this);
  Tensor y = Tensor::Empty(allocator_, host.shape(), host.dtype(), MemoryClass::kActivations,
                           FirstUse::kUpload);
  page_locked_.Upload(host.raw(), y.raw(), y.bytes());
  return y;
}

void CudaKernels::Add(const Tensor& a, const Tensor& b, const Tensor& y) {
  Span span(this);
  LS_CUDA(cuda::Add(stream(), Elements(y, a, b), Of(a), Of(b), Of(y)));
}

void CudaKernels::Multiply(const Tensor& a, const Tensor& b, const Tensor& y) {
  Span span(this);
  LS_CUDA(cuda::Multiply(stream(), Elements(y, a, b), Of(a), Of(b), Of(y)));
}

void CudaKernels::Scale(const Tensor& x, float factor, const Tensor& y) {
  Span span(this);
  LS_CUDA(cuda::Scale(stream(), Elements(y, x), Of(x), factor, Of(y)));
}

void CudaKernels::AddScaled(const Tensor& x, float factor, const Tensor& y) {
  Span span(this);
  LS_CUDA(cuda::AddScaled(stream(), Elements(y, x), Of(x), factor, Of(y)));
}

void CudaKernels::Relu(const Tensor& x, const Tensor& y) {
  Span span(this);
  LS_CUDA(cuda::Relu(stream(), Elements(y, x), Of(x), Of(y)));
}

void CudaKernels::ReluBackward(const Tensor& y, const Tensor& dy, const Tensor& dx) {
  Span span(this);
  LS_CUDA(cuda::ReluBackward(stream(), Elements(dx, y, dy), Of(y), Of(dy), Of(dx)));
}

void CudaKernels::Gelu(const Tensor& x, const Tensor& y) {
  Span span(this);
  LS_CUDA(cuda::Gelu(stream(), Elements(y, x), Of(x), Of(y)));
}

void CudaKernels::GeluBackward(const Tensor& x, const Tensor& dy, const Tensor& dx) {
  Span span(this);
  LS_CUDA(cuda::GeluBackward(stream(), Elements(dx, x, dy), Of(x), Of(dy), Of(dx)));
}

void CudaKernels::SwiGlu(const Tensor& x, const Tensor& y) {
  Span span(this);
  CHECK_EQ(x.elements(), 2 * y.elements());
  LS_CUDA(cuda::SwiGlu(stream(), y.shape().rows(), y.shape()[-1], Of(x), Of(y)));
}

void CudaKernels::SwiGluBackward(const Tensor& x, const Tensor& dy, const Tensor& dx) {
  Span span(this);
  CHECK_EQ(Elements(dx, x), 2 * dy.elements());
  LS_CUDA(cuda::SwiGluBackward(stream(), dy.shape().rows(), dy.shape()[-1], Of(x), Of(dy), Of(dx)));
}

void CudaKernels::ApplyDropout(const Dropout& dropout, int64_t first_element, const Tensor& x,
                               const Tensor& y) {
  Span span(this);
  LS_CUDA(cuda::ApplyDropout(stream(), Elements(y, x), dropout, first_element, Of(x), Of(y)));
}

}  // namespace lockstep
