// SwiGLU: rows of two halves, a gate and the values that it scales.

#include <algorithm>

#include "core/base/parallel.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/float_elements.h"
#include "core/kernels/cpu/span.h"
#include "core/kernels/cpu/vector_math.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

using cpu::FloatInput;
using cpu::FloatOutput;
using cpu::kStretch;

// Elements below which a fork does not pay.
constexpr int64_t kGrain = 1 << 13;

// Where a stretch of a row lies: its gate and its values in x [rows, 2 * hidden], its result in
// y [rows, hidden].
struct Stretch {
  int64_t gate, value, result, count;
};

// Calls run(for_stretches) for ranges of rows, in parallel, where
// for_stretches(compute) calls compute(stretch) for all stretches of these rows.
template <typename Run>
void ForRows(const Tensor& x, const Tensor& y, Run&& run) {
  const int64_t rows = y.shape().rows(), hidden = y.shape()[-1];
  CHECK_EQ(x.shape()[-1], 2 * hidden);
  CHECK_EQ(x.shape().rows(), rows);
  ParallelFor(rows, std::max<int64_t>(1, kGrain / hidden), [&](int64_t begin, int64_t end) {
    run([&](auto&& compute) {
      for (int64_t row = begin; row < end; ++row) {
        cpu::ForStretches(0, hidden, kStretch, [&](int64_t column, int64_t count) {
          const int64_t gate = 2 * row * hidden + column;
          compute(Stretch{gate, gate + hidden, row * hidden + column, count});
        });
      }
    });
  });
}

}  // namespace

void CpuKernels::SwiGlu(const Tensor& x, const Tensor& y) {
  Span span(this, {x}, {y});
  ForRows(x, y, [&](auto&& for_stretches) {
    FloatInput gates(x, kStretch), values(x, kStretch);
    FloatOutput output(y, kStretch);
    for_stretches([&](const Stretch& at) {
      const float* gate = gates.Load(at.gate, at.count);
      const float* value = values.Load(at.value, at.count);
      float* out = output.Open(at.result, at.count);
#pragma omp simd
      for (int64_t i = 0; i < at.count; ++i) {
        out[i] = gate[i] * cpu::Sigmoid(gate[i]) * value[i];
      }
      output.Close();
    });
  });
}

void CpuKernels::SwiGluBackward(const Tensor& x, const Tensor& dy, const Tensor& dx) {
  Span span(this, {x, dy}, {dx});
  ForRows(x, dy, [&](auto&& for_stretches) {
    FloatInput gates(x, kStretch), values(x, kStretch), slopes(dy, kStretch);
    FloatOutput gate_output(dx, kStretch), value_output(dx, kStretch);
    for_stretches([&](const Stretch& at) {
      const float* gate = gates.Load(at.gate, at.count);
      const float* value = values.Load(at.value, at.count);
      const float* slope = slopes.Load(at.result, at.count);
      float* dgate = gate_output.Open(at.gate, at.count);
      float* dvalue = value_output.Open(at.value, at.count);
#pragma omp simd
      for (int64_t i = 0; i < at.count; ++i) {
        const cpu::ValueAndSlope silu = cpu::SiluWithDerivative(gate[i]);
        dgate[i] = slope[i] * value[i] * silu.slope;
        dvalue[i] = slope[i] * silu.value;
      }
      gate_output.Close();
      value_output.Close();
    });
  });
}

}  // namespace lockstep
