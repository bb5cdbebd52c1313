#pragma once

#include <array>

#include "core/kernels/optimizers/rule.h"

namespace lockstep {

// Stochastic gradient descent, as torch.optim.SGD without dampening, whose first step is that of a
// momentum buffer of zeros. Weight decay is added to the gradient. Without momentum there is no
// buffer.
struct Sgd {
  static constexpr char kName[] = "sgd";

  float momentum = 0;
  bool nesterov = false;  // Nesterov's momentum

  template <typename Reader>
  void Read(Reader& reader) {
    reader.Read("momentum", &momentum, {.at_least = 0, .less_than = 1});
    reader.Read("nesterov", &nesterov);
    if (nesterov && momentum == 0) reader.AddProblem("nesterov", "needs a momentum above 0");
  }

  struct Update {
    static constexpr std::array<const char*, 0> kStates = {};

    float rate;

    LS_HOST_DEVICE void operator()(float decay, float g, float& p) const {
      p -= rate * (g + decay * p);
    }
  };

  struct MomentumUpdate {
    static constexpr std::array kStates = {"momentum"};

    float rate, momentum;
    float slope_part, buffer_part;  // what the step takes of the gradient and of the buffer

    LS_HOST_DEVICE void operator()(float decay, float g, float& p, float& buffer) const {
      const float slope = g + decay * p;
      buffer = momentum * buffer + slope;
      p -= rate * (slope_part * slope + buffer_part * buffer);
    }
  };

  template <typename Use>
  auto WithUpdate(const OptimizerStep& step, Use&& use) const {
    if (momentum == 0) return use(Update{.rate = step.learning_rate});
    return use(MomentumUpdate{.rate = step.learning_rate,
                              .momentum = momentum,
                              .slope_part = nesterov ? 1.0f : 0.0f,
                              .buffer_part = nesterov ? momentum : 1.0f});
  }
};

}  // namespace lockstep
