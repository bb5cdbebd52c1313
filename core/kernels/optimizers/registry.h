// The element-wise optimizers that there are.

#pragma once

#include <string>
#include <variant>
#include <vector>

#include "core/kernels/optimizers/adamw.h"
#include "core/kernels/optimizers/lion.h"
#include "core/kernels/optimizers/rule.h"
#include "core/kernels/optimizers/sgd.h"

namespace lockstep {

// An optimizer and its options but the learning rate and weight decay, which all have.
using OptimizerRule = std::variant<Sgd, AdamW, Lion>;

// The name that [optimizer] kind has for the optimizer.
inline std::string Name(const OptimizerRule& optimizer) {
  return std::visit([](const auto& rule) { return std::string(rule.kName); }, optimizer);
}

// Every optimizer, with its default options.
inline std::vector<OptimizerRule> AllOptimizers() {
  constexpr auto kDefaults = []<typename... Rules>(const std::variant<Rules...>*) {
    return std::vector<OptimizerRule>{Rules{}...};
  };
  return kDefaults(static_cast<const OptimizerRule*>(nullptr));
}

// Returns use(update), where update(decay, g, p, states...) is one step for one element (rule.h).
template <typename Use>
auto WithUpdate(const OptimizerRule& optimizer, const OptimizerStep& step, Use&& use) {
  return std::visit([&](const auto& rule) { return rule.WithUpdate(step, use); }, optimizer);
}

// Names of the state tensors that the optimizer keeps for each parameter, in fp32.
inline std::vector<std::string> StateNames(const OptimizerRule& optimizer) {
  return WithUpdate(optimizer, {}, [](const auto& update) {
    return std::vector<std::string>(update.kStates.begin(), update.kStates.end());
  });
}

}  // namespace lockstep
