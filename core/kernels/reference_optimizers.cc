#include <array>
#include <cmath>
#include <cstdint>
#include <variant>

#include "core/kernels/reference.h"

namespace lockstep::reference {
namespace {

using States = std::array<Result, kMostOptimizerStates>;

// One overload of Update for each rule.

void Update(const Sgd& sgd, const OptimizerStep& step, const Array& gradient, Result& parameter,
            States& states) {
  Result& momentum = states[0];
  for (int64_t i = 0; i < parameter.elements(); ++i) {
    const double g = gradient[i] * step.gradient_factor;
    double change = g + step.weight_decay * parameter[i];
    double magnitude = std::abs(g) + step.weight_decay * parameter.magnitude[i];
    if (sgd.momentum != 0) {
      double& buffer = momentum.value[i];
      double& buffer_magnitude = momentum.magnitude[i];
      buffer = sgd.momentum * buffer + change;
      buffer_magnitude = sgd.momentum * buffer_magnitude + magnitude;
      change = sgd.nesterov ? change + sgd.momentum * buffer : buffer;
      magnitude = sgd.nesterov ? magnitude + sgd.momentum * buffer_magnitude : buffer_magnitude;
    }
    parameter.value[i] -= step.learning_rate * change;
    parameter.magnitude[i] += step.learning_rate * magnitude;
  }
}

void Update(const AdamW& adamw, const OptimizerStep& step, const Array& gradient, Result& parameter,
            States& states) {
  Result& first_moment = states[0];
  Result& second_moment = states[1];
  const double beta1 = adamw.beta1, beta2 = adamw.beta2, rate = step.learning_rate;
  const double correction1 = 1 - std::pow(beta1, step.number);
  const double correction2 = 1 - std::pow(beta2, step.number);
  for (int64_t i = 0; i < parameter.elements(); ++i) {
    const double g = gradient[i] * step.gradient_factor;
    double& p = parameter.value[i];
    double& m = first_moment.value[i];
    double& v = second_moment.value[i];
    p -= rate * step.weight_decay * p;
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    first_moment.magnitude[i] = beta1 * first_moment.magnitude[i] + (1 - beta1) * std::abs(g);
    second_moment.magnitude[i] = v;
    const double denominator = std::sqrt(v) / std::sqrt(correction2) + adamw.epsilon;
    p -= rate / correction1 * m / denominator;
    parameter.magnitude[i] += rate / correction1 * first_moment.magnitude[i] / denominator;
  }
}

void Update(const Lion& lion, const OptimizerStep& step, const Array& gradient, Result& parameter,
            States& states) {
  Result& average = states[0];
  const double beta1 = lion.beta1, beta2 = lion.beta2, rate = step.learning_rate;
  for (int64_t i = 0; i < parameter.elements(); ++i) {
    const double g = gradient[i] * step.gradient_factor;
    const double c = beta1 * average[i] + (1 - beta1) * g;
    const double terms = beta1 * average.magnitude[i] + (1 - beta1) * std::abs(g);
    const int sign = (c > 0) - (c < 0);
    const double decay = step.weight_decay;
    parameter.value[i] -= rate * (sign + decay * parameter[i]);
    // Where all but 2^-20 of the terms cancels, rounding in fp32 may turn the sign: any step of
    // this rate is right then.
    const bool sign_is_certain = std::abs(c) >= 0x1p-20 * terms;
    parameter.magnitude[i] +=
        rate * ((sign_is_certain ? 1 : 0x1p24) + decay * parameter.magnitude[i]);
    average.value[i] = beta2 * average[i] + (1 - beta2) * g;
    average.magnitude[i] = beta2 * average.magnitude[i] + (1 - beta2) * std::abs(g);
  }
}

}  // namespace

void UpdateParameter(const OptimizerRule& optimizer, const OptimizerStep& step,
                     const Array& gradient, Result& parameter, States& states) {
  std::visit([&](const auto& rule) { Update(rule, step, gradient, parameter, states); }, optimizer);
}

}  // namespace lockstep::reference
