// The loops that optimizers' updates run in: one pass over memory.

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

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

// Updates elements [0, count) of a parameter and its states from their gradient. `update` is a
// copy, whose numbers no store can change.
template <typename Update, typename... States>
void UpdateElements(const Update update, float decay, float gradient_factor, int64_t count,
                    const float* __restrict g, float* __restrict p, States* __restrict... states) {
  for (int64_t i = 0; i < count; ++i) update(decay, g[i] * gradient_factor, p[i], states[i]...);
}

template <typename Update, size_t... kState>
void UpdateAll(const Update& update, const OptimizerStep& step,
               absl::Span<const Kernels::OptimizedTensor> tensors, std::index_sequence<kState...>) {
  static_assert(sizeof...(kState) <= kMostOptimizerStates);
  ForParameters(tensors, sizeof...(kState),
                [&](const Kernels::OptimizedTensor& tensor, const float* slopes, int64_t first,
                    int64_t count) {
                  UpdateElements(update, tensor.decays ? step.weight_decay : 0,
                                 step.gradient_factor, count, slopes,
                                 tensor.parameter.data<float>() + first,
                                 (tensor.states[kState].template data<float>() + first)...);
                });
}

}  // namespace

void CpuKernels::UpdateParameters(const OptimizerRule& optimizer, const OptimizerStep& step,
                                  absl::Span<const OptimizedTensor> tensors) {
  std::vector<Span::TensorRef> all;
  for (const OptimizedTensor& tensor : tensors) {
    all.insert(all.end(), {tensor.gradient, tensor.parameter, tensor.copy});
    all.insert(all.end(), tensor.states.begin(), tensor.states.end());
  }
  Span span(this, {}, all);  // gradients, only read, stand between what is written
  WithUpdate(optimizer, step, [&](const auto& update) {
    UpdateAll(update, step, tensors, StateIndices<std::remove_cvref_t<decltype(update)>>());
  });
}

}  // namespace lockstep
