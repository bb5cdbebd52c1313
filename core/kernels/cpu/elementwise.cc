// Data movement and arithmetic element by element.

#include <algorithm>
#include <cstring>

#include "Eigen/Core"
#include "core/base/parallel.h"
#include "core/base/philox.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/float_elements.h"
#include "core/kernels/cpu/span.h"
#include "core/kernels/cpu/vector_math.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements below which a fork does not pay

// Calls fn(y, inputs...) with Eigen views of the same range of each tensor as fp32, range by range
// in parallel; y may be an input.
template <typename Function, typename... Tensors>
void ForRanges(Function&& fn, const Tensor& y, const Tensors&... inputs) {
  CHECK(((inputs.elements() == y.elements()) && ...));
  ParallelFor(y.elements(), kGrain, [&](int64_t begin, int64_t end) {
    cpu::FloatOutput output(y, cpu::kStretch);
    const auto run = [&](auto... in) {
      cpu::ForStretches(begin, end, cpu::kStretch, [&](int64_t first, int64_t count) {
        fn(Eigen::Map<Eigen::ArrayXf>(output.Open(first, count), count),
           Eigen::Map<const Eigen::ArrayXf>(in.Load(first, count), count)...);
        output.Close();
      });
    };
    run(cpu::FloatInput(inputs, cpu::kStretch)...);
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
  Span span(this, {}, {y});
  ForRanges([value](auto out) { out.setConstant(value); }, y);
}

void CpuKernels::Copy(const Tensor& x, const Tensor& y) {
  Span span(this, {x}, {y});
  CHECK_EQ(x.bytes(), y.bytes());
  ParallelFor(x.bytes(), kGrain * 4, [&](int64_t begin, int64_t end) {
    std::memcpy(y.raw() + begin, x.raw() + begin, end - begin);
  });
}

void CpuKernels::Cast(const Tensor& x, const Tensor& y) {
  Span span(this, {x}, {y});
  CHECK_EQ(x.elements(), y.elements());
  if (x.dtype() == y.dtype()) {
    Copy(x, y);
  } else if (x.dtype() == DType::kF32 && y.dtype() == DType::kF64) {
    CastElements<float, double>(x, y);
  } else if (x.dtype() == DType::kF64 && y.dtype() == DType::kF32) {
    CastElements<double, float>(x, y);
  } else {
    ParallelFor(x.elements(), kGrain, [&](int64_t begin, int64_t end) {
      cpu::FloatInput input(x, cpu::kStretch);
      cpu::ForStretches(begin, end, cpu::kStretch, [&](int64_t first, int64_t count) {
        cpu::StoreFloats(input.Load(first, count), first, count, y);
      });
    });
  }
}

void CpuKernels::CopyFromHost(const void* host, const Tensor& y) {
  Span span(this, {}, {y});
  std::memcpy(y.raw(), host, y.bytes());
}

void CpuKernels::CopyToHost(const Tensor& x, void* host) {
  Span span(this, {x}, {});
  std::memcpy(host, x.raw(), x.bytes());
}

void CpuKernels::Add(const Tensor& a, const Tensor& b, const Tensor& y) {
  Span span(this, {a, b}, {y});
  ForRanges([](auto out, auto p, auto q) { out = p + q; }, y, a, b);
}

void CpuKernels::Multiply(const Tensor& a, const Tensor& b, const Tensor& y) {
  Span span(this, {a, b}, {y});
  ForRanges([](auto out, auto p, auto q) { out = p * q; }, y, a, b);
}

void CpuKernels::Scale(const Tensor& x, float factor, const Tensor& y) {
  Span span(this, {x}, {y});
  ForRanges([factor](auto out, auto in) { out = in * factor; }, y, x);
}

void CpuKernels::AddScaled(const Tensor& x, float factor, const Tensor& y) {
  Span span(this, {x}, {y});
  ForRanges([factor](auto out, auto sum, auto in) { out = sum + in * factor; }, y, y, x);
}

void CpuKernels::Relu(const Tensor& x, const Tensor& y) {
  Span span(this, {x}, {y});
  ForRanges(
      [](auto out, auto in) {
        for (int64_t i = 0; i < out.size(); ++i) out[i] = in[i] < 0 ? 0 : in[i];  // NaN passes
      },
      y, x);
}

void CpuKernels::ReluBackward(const Tensor& y, const Tensor& dy, const Tensor& dx) {
  Span span(this, {y, dy}, {dx});
  ForRanges([](auto in, auto out, auto gradient) { in = (out > 0.0f).select(gradient, 0.0f); }, dx,
            y, dy);
}

void CpuKernels::Gelu(const Tensor& x, const Tensor& y) {
  Span span(this, {x}, {y});
  ForRanges(
      [](auto out, auto in) {
        for (int64_t i = 0; i < out.size(); ++i) out[i] = cpu::Gelu(in[i]);
      },
      y, x);
}

void CpuKernels::GeluBackward(const Tensor& x, const Tensor& dy, const Tensor& dx) {
  Span span(this, {x, dy}, {dx});
  ForRanges(
      [](auto out, auto in, auto gradient) {
        for (int64_t i = 0; i < out.size(); ++i)
          out[i] = gradient[i] * cpu::GeluWithDerivative(in[i]).slope;
      },
      dx, x, dy);
}

void CpuKernels::ApplyDropout(const Dropout& dropout, int64_t first_element, const Tensor& x,
                              const Tensor& y) {
  Span span(this, {x}, {y});
  const Philox philox(dropout.key);
  const float scale = 1.0f / (1.0f - dropout.probability);
  ParallelFor(x.elements(), kGrain, [&](int64_t begin, int64_t end) {
    constexpr int64_t kStretch = 1024;
    float uniform[kStretch];
    cpu::FloatInput input(x, kStretch);
    cpu::FloatOutput output(y, kStretch);
    cpu::ForStretches(begin, end, kStretch, [&](int64_t first, int64_t count) {
      philox.FillUniform({uniform, static_cast<size_t>(count)}, first_element + first,
                         dropout.counter, 0.0f, 1.0f);
      const float* in = input.Load(first, count);
      float* out = output.Open(first, count);
      for (int64_t i = 0; i < count; ++i) {
        out[i] = uniform[i] >= dropout.probability ? in[i] * scale : 0.0f;
      }
      output.Close();
    });
  });
}

}  // namespace lockstep
