// The optimizers' updates, one pass over memory each.

#include <cmath>

#include "core/base/parallel.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/float_elements.h"
#include "core/kernels/cpu/span.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements below which a fork does not pay

// Calls update(slopes, first, count) for stretches of the parameter, with their gradient as fp32,
// in parallel, and rewrites the stretch of `copy` while the new values are in cache.
template <typename Update>
void ForParameter(const Tensor& gradient, const Tensor& parameter, const Tensor& copy,
                  Update&& update) {
  CHECK_EQ(gradient.elements(), parameter.elements());
  CHECK(!copy.defined() || copy.elements() == parameter.elements());
  CHECK(parameter.dtype() == DType::kF32) << "a master in " << Name(parameter.dtype());
  ParallelFor(parameter.elements(), kGrain, [&](int64_t begin, int64_t end) {
    cpu::FloatInput slopes(gradient, cpu::kStretch);
    cpu::ForStretches(begin, end, cpu::kStretch, [&](int64_t first, int64_t count) {
      update(slopes.Load(first, count), first, count);
      if (!copy.defined()) return;
      cpu::StoreFloats(parameter.data<float>() + first, first, count, copy);
    });
  });
}

}  // namespace

void CpuKernels::AdamWStep(const AdamW& options, float gradient_factor, const Tensor& gradient,
                           const Tensor& parameter, const Tensor& first_moment,
                           const Tensor& second_moment, const Tensor& copy) {
  Span span(this);
  const double correction1 = 1 - std::pow(static_cast<double>(options.beta1), options.step);
  const double correction2 = 1 - std::pow(static_cast<double>(options.beta2), options.step);
  const float rate = static_cast<float>(options.learning_rate / correction1);
  const float root = static_cast<float>(1 / std::sqrt(correction2));
  const float keep = 1 - options.learning_rate * options.weight_decay;
  const float beta1 = options.beta1, beta2 = options.beta2, epsilon = options.epsilon;
  ForParameter(gradient, parameter, copy, [&](const float* slopes, int64_t first, int64_t count) {
    const float* __restrict g = slopes;
    float* __restrict p = parameter.data<float>() + first;
    float* __restrict m = first_moment.data<float>() + first;
    float* __restrict v = second_moment.data<float>() + first;
    for (int64_t i = 0; i < count; ++i) {
      const float slope = g[i] * gradient_factor;
      m[i] = beta1 * m[i] + (1 - beta1) * slope;
      v[i] = beta2 * v[i] + (1 - beta2) * slope * slope;
      p[i] = p[i] * keep - rate * m[i] / (std::sqrt(v[i]) * root + epsilon);
    }
  });
}

void CpuKernels::SgdStep(const Sgd& options, float gradient_factor, const Tensor& gradient,
                         const Tensor& parameter, const Tensor& momentum, const Tensor& copy) {
  Span span(this);
  CHECK(momentum.defined() || options.momentum == 0);
  const float rate = options.learning_rate, decay = options.weight_decay;
  ForParameter(gradient, parameter, copy, [&](const float* slopes, int64_t first, int64_t count) {
    const float* __restrict g = slopes;
    float* __restrict p = parameter.data<float>() + first;
    if (options.momentum == 0) {
      for (int64_t i = 0; i < count; ++i) {
        p[i] -= rate * (g[i] * gradient_factor + decay * p[i]);
      }
      return;
    }
    float* __restrict b = momentum.data<float>() + first;
    const float keep = options.momentum;
    const float old = options.nesterov ? 1 : 0, velocity = options.nesterov ? options.momentum : 1;
    for (int64_t i = 0; i < count; ++i) {
      const float slope = g[i] * gradient_factor + decay * p[i];
      b[i] = keep * b[i] + slope;
      p[i] -= rate * (old * slope + velocity * b[i]);
    }
  });
}

}  // namespace lockstep
