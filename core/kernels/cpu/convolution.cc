// Convolutions: which algorithm a layer takes, and those that oneDNN computes group by group.

#include <algorithm>
#include <cstddef>
#include <cstring>  // std::memcpy, std::memset

#include "core/base/parallel.h"
#include "core/kernels/cpu/convolution_primitive.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/float_elements.h"
#include "core/kernels/cpu/leaf_sums.h"
#include "core/kernels/cpu/span.h"
#include "core/kernels/cpu/tree_leaves.h"
#include "core/kernels/cpu/wide.h"
#include "core/kernels/cpu/winograd.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

using cpu::ConvolutionPrimitives;
using Pass = ConvolutionPrimitives::Pass;

constexpr int64_t CeilDivide(int64_t n, int64_t by) { return (n + by - 1) / by; }

// Number of samples of a group: enough of a layer's output pixels to keep one thread busy between
// two visits of the weights, but few samples, since the last group of a call is filled up with
// zeros. The sum of a weight's gradient is written once a group, so that its groups are larger.
int64_t PieceSamples(Pass pass, int64_t pixels) {
  constexpr int64_t kMost = 16;
  const int64_t wanted = pass == Pass::kBackwardWeight ? 256 : 64;
  return std::min(kMost, CeilDivide(wanted, pixels));
}

// A tensor [batch, ...] as a convolution takes it: groups of `samples` samples of a dtype. Groups
// of the tensor's own dtype are taken where they lie; others, and a last group that is shorter, are
// staged in memory that the caller gives.
class Groups {
 public:
  Groups(const Tensor& tensor, DType dtype, int64_t samples)
      : tensor_(tensor),
        dtype_(dtype),
        samples_(samples),
        elements_(tensor.elements() / tensor.shape()[0]) {}

  int64_t count() const { return CeilDivide(tensor_.shape()[0], samples_); }
  int64_t staging_bytes() const {
    const bool direct = tensor_.dtype() == dtype_ && tensor_.shape()[0] % samples_ == 0;
    return direct ? 0 : CeilDivide(samples_ * elements_ * SizeOf(dtype_), 64) * 64;
  }

  const void* Load(int64_t group, std::byte* staging) const {
    if (IsDirect(group)) return Open(group, staging);
    const int64_t first = group * samples_ * elements_, count = Elements(group);
    if (tensor_.dtype() == dtype_) {
      std::memcpy(staging, Direct(group), count * SizeOf(dtype_));
    } else {
      cpu::LoadFloats(tensor_, first, count, reinterpret_cast<float*>(staging));
    }
    const int64_t filled = count * SizeOf(dtype_);
    std::memset(staging + filled, 0, samples_ * elements_ * SizeOf(dtype_) - filled);
    return staging;
  }
  // Where to write a group, and what to call when it is written.
  void* Open(int64_t group, std::byte* staging) const {
    return IsDirect(group) ? Direct(group) : staging;
  }
  void Close(int64_t group, const std::byte* staging) const {
    if (IsDirect(group)) return;
    const int64_t first = group * samples_ * elements_, count = Elements(group);
    if (tensor_.dtype() == dtype_) {
      std::memcpy(Direct(group), staging, count * SizeOf(dtype_));
    } else {
      cpu::StoreFloats(reinterpret_cast<const float*>(staging), first, count, tensor_);
    }
  }

 private:
  bool IsDirect(int64_t group) const {
    return tensor_.dtype() == dtype_ && Elements(group) == samples_ * elements_;
  }
  std::byte* Direct(int64_t group) const {
    return tensor_.raw() + group * samples_ * elements_ * SizeOf(tensor_.dtype());
  }
  int64_t Elements(int64_t group) const {
    return std::min(samples_, tensor_.shape()[0] - group * samples_) * elements_;
  }

  const Tensor& tensor_;
  DType dtype_;
  int64_t samples_, elements_;
};

// Memory of each thread: a primitive's scratch, and a group of x and of y.
class PrimitiveScratch {
 public:
  PrimitiveScratch(Kernels& kernels, int chunks, const ConvolutionPrimitives::Primitive& primitive,
                   const Groups& x, const Groups& y)
      : x_(primitive.scratch_bytes()),
        y_(x_ + x.staging_bytes()),
        size_(y_ + y.staging_bytes()),
        data_(kernels.Empty({chunks, size_}, DType::kU8, MemoryClass::kWorkspace)) {}

  std::byte* Primitive(int chunk) const { return data_.raw() + chunk * size_; }
  std::byte* X(int chunk) const { return Primitive(chunk) + x_; }
  std::byte* Y(int chunk) const { return Primitive(chunk) + y_; }

 private:
  int64_t x_, y_, size_;
  Tensor data_;
};

ConvolutionPrimitives::Spec SpecOf(Pass pass, const Window& window, const Tensor& x,
                                   const Tensor& y, DType dtype) {
  return {.pass = pass,
          .window = window,
          .samples = PieceSamples(pass, y.shape()[1] * y.shape()[2]),
          .height = x.shape()[1],
          .width = x.shape()[2],
          .in = x.shape()[3],
          .out = y.shape()[3],
          .dtype = dtype};
}

}  // namespace

void CpuKernels::ConvolutionByGroups(bool forward, const Tensor& x, const Tensor& w,
                                     const Tensor& bias, const Window& window, const Tensor& y) {
  const DType dtype = MultipliesBf16(x) ? DType::kBF16 : DType::kF32;
  const Tensor weights = dtype == DType::kF32 ? cpu::Wide(*this, w) : w;
  const Tensor addend = dtype == DType::kF32 ? cpu::Wide(*this, bias) : bias;
  ConvolutionPrimitives::Spec spec =
      SpecOf(forward ? Pass::kForward : Pass::kBackwardInput, window, x, y, dtype);
  spec.bias = bias.defined();
  const ConvolutionPrimitives::Primitive& primitive = primitives_->Get(spec);
  const Groups xs(x, dtype, spec.samples), ys(y, dtype, spec.samples);
  Tensor packed = Empty({primitive.packed_bytes(ConvolutionPrimitives::kW)}, DType::kU8,
                        MemoryClass::kWorkspace);
  const PrimitiveScratch scratch(*this, ParallelChunks(xs.count(), 1), primitive, xs, ys);
  if (SkipsLoops()) return;
  primitives_->PackWeight(primitive, weights.raw(), packed.raw());
  ParallelForChunks(xs.count(), 1, [&](int chunk, int64_t begin, int64_t end) {
    std::byte *x_staging = scratch.X(chunk), *y_staging = scratch.Y(chunk);
    for (int64_t group = begin; group < end; ++group) {
      const void* from = forward ? xs.Load(group, x_staging) : xs.Open(group, x_staging);
      const void* to = forward ? ys.Open(group, y_staging) : ys.Load(group, y_staging);
      primitive.Run(from, packed.raw(), addend.raw(), to, scratch.Primitive(chunk));
      forward ? ys.Close(group, y_staging) : xs.Close(group, x_staging);
    }
  });
}

void CpuKernels::Convolution(const Tensor& x, const Tensor& w, const Tensor& bias,
                             const Window& window, const Tensor& y) {
  Span span(this, {x, w, bias}, {y});
  CHECK_EQ(x.shape()[-1], w.shape()[-1]);
  CHECK_EQ(y.shape()[1], window.Output(x.shape()[1]));
  if (cpu::WinogradPays(window, x.shape()[3], y.shape()[3])) {
    return cpu::WinogradForward(*this, x, w, bias, y);
  }
  ConvolutionByGroups(/*forward=*/true, x, w, bias, window, y);
}

void CpuKernels::ConvolutionBackwardInput(const Tensor& dy, const Tensor& w, const Window& window,
                                          const Tensor& dx) {
  Span span(this, {dy, w}, {dx});
  if (cpu::WinogradPays(window, dx.shape()[3], dy.shape()[3])) {
    return cpu::WinogradBackwardInput(*this, dy, w, dx);
  }
  ConvolutionByGroups(/*forward=*/false, dx, w, Tensor(), window, dy);
}

void CpuKernels::ConvolutionBackwardWeight(const Tensor& dy, const Tensor& x, const Window& window,
                                           Write write, const Tensor& dw, const Tensor& dbias) {
  Span span(this, {dy, x}, {dw, dbias});
  // The sum of a call is complete, in fp32, before it is added to what dw holds.
  const bool in_place = write == Write::kOverwrite && dw.dtype() == DType::kF32;
  const Tensor sum = in_place ? dw : Workspace(dw.shape());
  if (cpu::WinogradPays(window, x.shape()[3], dy.shape()[3])) {
    cpu::WinogradBackwardWeight(*this, dy, x, sum);
  } else {
    WeightGradientByGroups(dy, x, window, sum);
  }
  if (!in_place) write == Write::kOverwrite ? Cast(sum, dw) : Add(dw, sum, dw);
  if (dbias.defined()) ColumnSums(dy, write, dbias);
}

void CpuKernels::WeightGradientByGroups(const Tensor& dy, const Tensor& x, const Window& window,
                                        const Tensor& dw) {
  const DType dtype = MultipliesBf16(dy) ? DType::kBF16 : DType::kF32;
  const ConvolutionPrimitives::Spec spec = SpecOf(Pass::kBackwardWeight, window, x, dy, dtype);
  const ConvolutionPrimitives::Primitive& primitive = primitives_->Get(spec);
  const Groups xs(x, dtype, spec.samples), ys(dy, dtype, spec.samples);
  const int64_t elements = primitive.packed_bytes(ConvolutionPrimitives::kW) / SizeOf(DType::kF32);
  cpu::TreeLeaves leaves(allocator_, 1, xs.count(), elements);
  const PrimitiveScratch scratch(*this, leaves.chunks(), primitive, xs, ys);
  const float* sum = nullptr;
  leaves.Sum(
      [&](int chunk, int64_t, int64_t group, float* leaf) {
        primitive.Run(xs.Load(group, scratch.X(chunk)), leaf, nullptr,
                      ys.Load(group, scratch.Y(chunk)), scratch.Primitive(chunk));
      },
      [&](int64_t, const float* packed) { sum = packed; });
  if (!SkipsLoops()) primitives_->UnpackWeight(primitive, sum, dw.raw());
}

}  // namespace lockstep
