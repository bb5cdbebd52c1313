// The optimizers' updates, one pass over memory each.

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/elementary.h"  // Power
#include "core/base/parallel.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/float_elements.h"
#include "core/kernels/cpu/span.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements below which a fork does not pay

// Calls update(tensor, slopes, first, count) for stretches of all parameters, each with `states`
// states and their gradient as fp32, and rewrites the stretch of the copy while the new values are
// in cache. In parallel over the elements of all: small tensors need no fork each.
template <typename Update>
void ForParameters(absl::Span<const Kernels::OptimizedTensor> tensors, size_t states,
                   Update&& update) {
  std::vector<int64_t> ends;  // of each tensor among the elements of all
  int64_t elements = 0;
  for (const Kernels::OptimizedTensor& tensor : tensors) {
    const Tensor& parameter = tensor.parameter;
    CHECK_EQ(tensor.gradient.elements(), parameter.elements());
    CHECK(!tensor.copy.defined() || tensor.copy.elements() == parameter.elements());
    CHECK(parameter.dtype() == DType::kF32) << "a master in " << Name(parameter.dtype());
    for (size_t s = 0; s < states; ++s) {
      CHECK_EQ(tensor.states[s].elements(), parameter.elements());
    }
    ends.push_back(elements += parameter.elements());
  }
  ParallelFor(elements, kGrain, [&](int64_t begin, int64_t end) {
    auto i = static_cast<size_t>(std::ranges::upper_bound(ends, begin) - ends.begin());
    for (; begin < end; begin = ends[i++]) {
      const Kernels::OptimizedTensor& tensor = tensors[i];
      const int64_t start = ends[i] - tensor.parameter.elements();
      cpu::FloatInput slopes(tensor.gradient, cpu::kStretch);
      cpu::ForStretches(begin - start, std::min(end, ends[i]) - start, cpu::kStretch,
                        [&](int64_t first, int64_t count) {
                          update(tensor, slopes.Load(first, count), first, count);
                          if (!tensor.copy.defined()) return;
                          cpu::StoreFloats(tensor.parameter.data<float>() + first, first, count,
                                           tensor.copy);
                        });
    }
  });
}

}  // namespace

void CpuKernels::AdamWStep(const AdamW& options, float gradient_factor,
                           absl::Span<const OptimizedTensor> tensors) {
  Span span(this);
  const double correction1 = 1 - Power(options.beta1, options.step);
  const double correction2 = 1 - Power(options.beta2, options.step);
  const float rate = static_cast<float>(options.learning_rate / correction1);
  const float root = static_cast<float>(1 / std::sqrt(correction2));
  const float decayed = 1 - options.learning_rate * options.weight_decay;
  const float beta1 = options.beta1, beta2 = options.beta2, epsilon = options.epsilon;
  ForParameters(
      tensors, 2,
      [&](const OptimizedTensor& tensor, const float* slopes, int64_t first, int64_t count) {
        const float* __restrict g = slopes;
        float* __restrict p = tensor.parameter.data<float>() + first;
        float* __restrict m = tensor.states[0].data<float>() + first;
        float* __restrict v = tensor.states[1].data<float>() + first;
        const float keep = tensor.decays ? decayed : 1;
        for (int64_t i = 0; i < count; ++i) {
          const float slope = g[i] * gradient_factor;
          m[i] = beta1 * m[i] + (1 - beta1) * slope;
          v[i] = beta2 * v[i] + (1 - beta2) * slope * slope;
          p[i] = p[i] * keep - rate * m[i] / (std::sqrt(v[i]) * root + epsilon);
        }
      });
}

void CpuKernels::SgdStep(const Sgd& options, float gradient_factor,
                         absl::Span<const OptimizedTensor> tensors) {
  Span span(this);
  const float rate = options.learning_rate;
  ForParameters(
      tensors, options.momentum == 0 ? 0 : 1,
      [&](const OptimizedTensor& tensor, const float* slopes, int64_t first, int64_t count) {
        const float* __restrict g = slopes;
        float* __restrict p = tensor.parameter.data<float>() + first;
        const float decay = tensor.decays ? options.weight_decay : 0;
        if (options.momentum == 0) {
          for (int64_t i = 0; i < count; ++i) {
            p[i] -= rate * (g[i] * gradient_factor + decay * p[i]);
          }
          return;
        }
        float* __restrict b = tensor.states[0].data<float>() + first;
        const float keep = options.momentum;
        const float old = options.nesterov ? 1 : 0,
                    velocity = options.nesterov ? options.momentum : 1;
        for (int64_t i = 0; i < count; ++i) {
          const float slope = g[i] * gradient_factor + decay * p[i];
          b[i] = keep * b[i] + slope;
          p[i] -= rate * (old * slope + velocity * b[i]);
        }
      });
}

}  // namespace lockstep
