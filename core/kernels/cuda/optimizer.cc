// The optimizers' updates.

#include "core/kernels/cuda/optimizer.h"

#include <cmath>

#include "core/cuda/error.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "core/kernels/cuda/span.h"
#include "glog/logging.h"

namespace lockstep {

using cuda::Of;

namespace {

void CheckOperands(const Tensor& gradient, const Tensor& parameter, const Tensor& copy) {
  CHECK_EQ(gradient.elements(), parameter.elements());
  CHECK(!copy.defined() || copy.elements() == parameter.elements());
  CHECK(parameter.dtype() == DType::kF32) << "a master in " << Name(parameter.dtype());
}

}  // namespace

void CudaKernels::AdamWStep(const AdamW& options, float gradient_factor, const Tensor& gradient,
                            const Tensor& parameter, const Tensor& first_moment,
                            const Tensor& second_moment, const Tensor& copy) {
  Span span(this);
  CheckOperands(gradient, parameter, copy);
  const double correction1 =
      1 - std::pow(static_cast<double>(options.beta1), static_cast<double>(options.step));
  const double correction2 =
      1 - std::pow(static_cast<double>(options.beta2), static_cast<double>(options.step));
  const cuda::AdamWFactors factors = {
      .gradient = gradient_factor,
      .beta1 = options.beta1,
      .beta2 = options.beta2,
      .epsilon = options.epsilon,
      .rate = static_cast<float>(options.learning_rate / correction1),
      .root = static_cast<float>(1 / std::sqrt(correction2)),
      .keep = 1 - options.learning_rate * options.weight_decay};
  LS_CUDA(cuda::AdamWStep(stream(), parameter.elements(), factors, Of(gradient),
                          parameter.data<float>(), first_moment.data<float>(),
                          second_moment.data<float>(), Of(copy)));
}

void CudaKernels::SgdStep(const Sgd& options, float gradient_factor, const Tensor& gradient,
                          const Tensor& parameter, const Tensor& momentum, const Tensor& copy) {
  Span span(this);
  CheckOperands(gradient, parameter, copy);
  CHECK(momentum.defined() || options.momentum == 0);
  const cuda::SgdFactors factors = {.gradient = gradient_factor,
                                    .rate = options.learning_rate,
                                    .decay = options.weight_decay,
                                    .momentum = options.momentum,
                                    .slope = options.nesterov ? 1.0f : 0.0f,
                                    .buffer = options.nesterov ? options.momentum : 1.0f};
  float* const buffer = options.momentum == 0 ? nullptr : momentum.data<float>();
  LS_CUDA(cuda::SgdStep(stream(), parameter.elements(), factors, Of(gradient),
                        parameter.data<float>(), buffer, Of(copy)));
}

}  // namespace lockstep
