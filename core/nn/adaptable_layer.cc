#include "core/nn/adaptable_layer.h"

#include <cmath>
#include <utility>

namespace lockstep {

AdaptableLayer::AdaptableLayer(std::string name, const Shape& weight_shape, Init init,
                               std::optional<Window> window)
    : Module(std::move(name)),
      weight_(AddParameter("weight", weight_shape, init)),
      window_(window) {}

void AdaptableLayer::AddAdapter(const Target& target, const AdapterShape& shape) {
  const std::string below = target.name.substr(name().size());  // "", or ".q"
  const std::string prefix = below.empty() ? "" : below.substr(1) + ".";
  const int64_t fan_in = weight_.shape.elements() / weight_.shape[0];
  Parameter& a = AddParameter(prefix + "lora_A", weight_.shape.With(0, shape.rank),
                              Init::Uniform(1.0f / std::sqrt(static_cast<float>(fan_in))));
  Parameter& b =
      AddParameter(prefix + "lora_B", {target.outputs.count, shape.rank}, Init::Constant(0));
  adapters_.emplace_back(a, b, shape, target.outputs, window_);
}

Variable AdaptableLayer::Adapt(Pass& pass, const Variable& x, Variable y) const {
  for (const Adapter& adapter : adapters_) y = adapter.Add(pass, x, std::move(y));
  return y;
}

void AdaptableLayer::SplitAdapterOutputs(const Slice& of_layer) {
  for (Adapter& adapter : adapters_) adapter.SplitOutputs(of_layer);
}

void AdaptableLayer::SplitAdapterInputs(const Slice& of_layer) {
  for (Adapter& adapter : adapters_) adapter.SplitInputs(of_layer);
}

void AdaptableLayer::SplitAdapterTokens(SplitGroup& group) {
  for (Adapter& adapter : adapters_) adapter.SplitTokens(group);
}

}  // namespace lockstep
