#pragma once

#include <array>

#include "core/kernels/optimizers/rule.h"

namespace lockstep {

// Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023): each element moves by
// the learning rate, up or down. Weight decay is decoupled, as AdamW's. Its authors recommend a
// learning rate 3 to 10 times smaller than AdamW's, and a weight decay as many times larger.
struct Lion {
  static constexpr char kName[] = "lion";

  float beta1 = 0.9f;   // of the average whose sign is the direction
  float beta2 = 0.99f;  // of the average that is kept

  template <typename Reader>
  void Read(Reader& reader) {
    reader.Read("beta1", &beta1, {.at_least = 0, .less_than = 1});
    reader.Read("beta2", &beta2, {.at_least = 0, .less_than = 1});
  }

  struct Update {
    // SGD's "momentum" is a sum of gradients, so neither optimizer resumes the other's checkpoint.
    static constexpr std::array kStates = {"gradient_average"};

    float rate, beta1, beta2;

    LS_HOST_DEVICE void operator()(float decay, float g, float& p, float& m) const {
      const float c = beta1 * m + (1 - beta1) * g;
      const float sign = c > 0 ? 1.0f : c < 0 ? -1.0f : c;  // 0 for 0, NaN for NaN
      p -= rate * (sign + decay * p);
      m = beta2 * m + (1 - beta2) * g;
    }
  };

  template <typename Use>
  auto WithUpdate(const OptimizerStep& step, Use&& use) const {
    return use(Update{.rate = step.learning_rate, .beta1 = beta1, .beta2 = beta2});
  }
};

}  // namespace lockstep
