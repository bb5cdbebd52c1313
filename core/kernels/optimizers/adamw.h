#pragma once

#include <array>
#include <cmath>

#include "core/base/elementary.h"  // Power
#include "core/kernels/optimizers/rule.h"

namespace lockstep {

// Adam with decoupled weight decay (Loshchilov and Hutter, "Decoupled Weight Decay Regularization",
// 2019), as torch.optim.AdamW.
struct AdamW {
  static constexpr char kName[] = "adamw";

  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;

  template <typename Reader>
  void Read(Reader& reader) {
    reader.Read("beta1", &beta1, {.at_least = 0, .less_than = 1});
    reader.Read("beta2", &beta2, {.at_least = 0, .less_than = 1});
    reader.Read("epsilon", &epsilon, {.greater_than = 0});
  }

  struct Update {
    static constexpr std::array kStates = {"first_moment", "second_moment"};

    float beta1, beta2, epsilon;
    float learning_rate;
    float rate;  // the learning rate with the first moment's bias correction
    float root;  // the second moment's correction: its square root is multiplied by this

    LS_HOST_DEVICE void operator()(float decay, float g, float& p, float& m, float& v) const {
      m = beta1 * m + (1 - beta1) * g;
      v = beta2 * v + (1 - beta2) * g * g;
      p = p * (1 - learning_rate * decay) - rate * m / (std::sqrt(v) * root + epsilon);
    }
  };

  template <typename Use>
  auto WithUpdate(const OptimizerStep& step, Use&& use) const {
    const double correction1 = 1 - Power(beta1, step.number);
    const double correction2 = 1 - Power(beta2, step.number);
    return use(Update{.beta1 = beta1,
                      .beta2 = beta2,
                      .epsilon = epsilon,
                      .learning_rate = step.learning_rate,
                      .rate = static_cast<float>(step.learning_rate / correction1),
                      .root = static_cast<float>(1 / std::sqrt(correction2))});
  }
};

}  // namespace lockstep
