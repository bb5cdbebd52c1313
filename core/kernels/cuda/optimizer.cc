// The optimizers' updates.

#include "core/kernels/cuda/optimizer.h"

#include <cmath>
#include <vector>

#include "core/base/elementary.h"  // Power
#include "core/cuda/error.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "core/kernels/cuda/span.h"
#include "glog/logging.h"

namespace lockstep {

using cuda::Of;

namespace {

std::vector<cuda::OptimizedArrays> ArraysOf(absl::Span<const Kernels::OptimizedTensor> tensors,
                                            size_t states) {
  std::vector<cuda::OptimizedArrays> result;
  result.reserve(tensors.size());
  for (const Kernels::OptimizedTensor& tensor : tensors) {
    const Tensor& parameter = tensor.parameter;
    CHECK_EQ(tensor.gradient.elements(), parameter.elements());
    CHECK(!tensor.copy.defined() || tensor.copy.elements() == parameter.elements());
    CHECK(parameter.dtype() == DType::kF32) << "a master in " << Name(parameter.dtype());
    cuda::OptimizedArrays arrays = {.elements = parameter.elements(),
                                    .gradient = Of(tensor.gradient),
                                    .parameter = parameter.data<float>(),
                                    .states = {},
                                    .copy = Of(tensor.copy),
                                    .decays = tensor.decays};
    for (size_t s = 0; s < states; ++s) {
      CHECK_EQ(tensor.states[s].elements(), parameter.elements());
      arrays.states[s] = tensor.states[s].data<float>();
    }
    result.push_back(arrays);
  }
  return result;
}

}  // namespace

void CudaKernels::AdamWStep(const AdamW& options, float gradient_factor,
                            absl::Span<const OptimizedTensor> tensors) {
  Span span(this);
  const double correction1 = 1 - Power(options.beta1, options.step);
  const double correction2 = 1 - Power(options.beta2, options.step);
  const cuda::AdamWFactors factors = {
      .gradient = gradient_factor,
      .beta1 = options.beta1,
      .beta2 = options.beta2,
      .epsilon = options.epsilon,
      .rate = static_cast<float>(options.learning_rate / correction1),
      .root = static_cast<float>(1 / std::sqrt(correction2)),
      .keep = 1 - options.learning_rate * options.weight_decay};
  LS_CUDA(cuda::AdamWStep(stream(), factors, ArraysOf(tensors, 2)));
}

void CudaKernels::SgdStep(const Sgd& options, float gradient_factor,
                          absl::Span<const OptimizedTensor> tensors) {
  Span span(this);
  const cuda::SgdFactors factors = {.gradient = gradient_factor,
                                    .rate = options.learning_rate,
                                    .decay = options.weight_decay,
                                    .momentum = options.momentum,
                                    .slope = options.nesterov ? 1.0f : 0.0f,
                                    .buffer = options.nesterov ? options.momentum : 1.0f};
  LS_CUDA(cuda::SgdStep(stream(), factors, ArraysOf(tensors, options.momentum == 0 ? 0 : 1)));
}

}  // namespace lockstep
