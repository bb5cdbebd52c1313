// Data movement and arithmetic element by element.

#include <algorithm>
#include <cstring>

#include "Eigen/Core"
#include "core/base/parallel.h"
#include "core/base/philox.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/span.h"
#include "core/kernels/cpu/vector_math.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements below which a fork does not pay

// Calls fn with Eigen views of the same range of each tensor, range by range in parallel.
template <typename Function, typename... Tensors>
void ForRanges(Function&& fn, const Tensor& first, const Tensors&... others) {
  CHECK(((others.elements() == first.elements()) && ...));
  ParallelFor(first.elements(), kGrain, [&](int64_t begin, int64_t end) {
    const auto view = [begin, end](const Tensor& t) {
      return Eigen::Map<Eigen::ArrayXf>(t.data<float>() + begin, end - begin);
    };
    fn(view(first), view(others)...);
  });
}

template <typename From, typename To>
void CastElements(const Tensor& x, const Tensor& y) {
  const From* from = x.data<From>();
  std::transform(from, from + x.elements(), y.data<To>(),
                 [](From value) { return static_cast<To>(value); });
}

}  // namespace

void CpuKernels::Fill(const Tensor& y, float value) {
  Span span(this);
  ForRanges([value](auto out) { out.setConstant(value); }, y);
}

void CpuKernels::Copy(const Tensor& x, const Tensor& y) {
  Span span(this);
  CHECK_EQ(x.bytes(), y.bytes());
  ParallelFor(x.bytes(), kGrain * 4, [&](int64_t begin, int64_t end) {
    std::memcpy(y.raw() + begin, x.raw() + begin, end - begin);
  });
}

void CpuKernels::Cast(const Tensor& x, const Tensor& y) {
  Span span(this);
  CHECK_EQ(x.elements(), y.elements());
  if (x.dtype() == y.dtype()) {
    Copy(x, y);
  } else if (x.dtype() == DType::kF32 && y.dtype() == DType::kF64) {
    CastElements<float, double>(x, y);
  } else if (x.dtype() == DType::kF64 && y.dtype() == DType::kF32) {
    CastElements<double, float>(x, y);
  } else {
    LOG(FATAL) << "no cast from " << Name(x.dtype()) << " to " << Name(y.dtype());
  }
}

void CpuKernels::CopyFromHost(const void* host, const Tensor& y) {
  Span span(this);
  std::memcpy(y.raw(), host, y.bytes());
}

void CpuKernels::CopyToHost(const Tensor& x, void* host) {
  Span span(this);
  std::memcpy(host, x.raw(), x.bytes());
}

void CpuKernels::Add(const Tensor& a, const Tensor& b, const Tensor& y) {
  Span span(this);
  ForRanges([](auto p, auto q, auto out) { out = p + q; }, a, b, y);
}

void CpuKernels::Multiply(const Tensor& a, const Tensor& b, const Tensor& y) {
  Span span(this);
  ForRanges([](auto p, auto q, auto out) { out = p * q; }, a, b, y);
}

void CpuKernels::Scale(const Tensor& x, float factor, const Tensor& y) {
  Span span(this);
  ForRanges([factor](auto in, auto out) { out = in * factor; }, x, y);
}

void CpuKernels::AddScaled(const Tensor& x, float factor, const Tensor& y) {
  Span span(this);
  ForRanges([factor](auto in, auto out) { out += in * factor; }, x, y);
}

void CpuKernels::Relu(const Tensor& x, const Tensor& y) {
  Span span(this);
  ForRanges([](auto in, auto out) { out = in.max(0.0f); }, x, y);
}

void CpuKernels::ReluBackward(const Tensor& y, const Tensor& dy, const Tensor& dx) {
  Span span(this);
  ForRanges([](auto out, auto gradient, auto in) { in = (out > 0.0f).select(gradient, 0.0f); }, y,
            dy, dx);
}

void CpuKernels::Gelu(const Tensor& x, const Tensor& y) {
  Span span(this);
  ParallelFor(x.elements(), kGrain, [&](int64_t begin, int64_t end) {
    const float* in = x.data<float>();
    float* out = y.data<float>();
    for (int64_t i = begin; i < end; ++i) out[i] = cpu::Gelu(in[i]);
  });
}

void CpuKernels::GeluBackward(const Tensor& x, const Tensor& dy, const Tensor& dx) {
  Span span(this);
  ParallelFor(x.elements(), kGrain, [&](int64_t begin, int64_t end) {
    const float* in = x.data<float>();
    const float* gradient = dy.data<float>();
    float* out = dx.data<float>();
    for (int64_t i = begin; i < end; ++i)
      out[i] = gradient[i] * cpu::GeluWithDerivative(in[i]).slope;
  });
}

void CpuKernels::ApplyDropout(const Dropout& dropout, int64_t first_element, const Tensor& x,
                              const Tensor& y) {
  Span span(this);
  const Philox philox(dropout.key);
  const float scale = 1.0f / (1.0f - dropout.probability);
  ParallelFor(x.elements(), kGrain, [&](int64_t begin, int64_t end) {
    constexpr int64_t kChunk = 1024;
    float uniform[kChunk];
    for (int64_t chunk = begin; chunk < end; chunk += kChunk) {
      const int64_t count = std::min(kChunk, end - chunk);
      philox.FillUniform({uniform, static_cast<size_t>(count)}, first_element + chunk,
                         dropout.counter, 0.0f, 1.0f);
      const float* in = x.data<float>() + chunk;
      float* out = y.data<float>() + chunk;
      for (int64_t i = 0; i < count; ++i) {
        out[i] = uniform[i] >= dropout.probability ? in[i] * scale : 0.0f;
      }
    }
  });
}

}  // namespace lockstep
