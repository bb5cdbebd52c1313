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

std::vector<LowRank> AdaptableLayer::AddedToWeight(const Adapter& adapter,
                                                   Kernels& /*kernels*/) const {
  return {{.rows = adapter.outputs(), .left = adapter.b().value, .right = adapter.a().value}};
}

Variable AdaptableLayer::Adapt(Pass& pass, const Variable& x, Variable y) const {
  for (const Adapter& adapter : adapters_) y = adapter.Add(pass, x, std::move(y));
  return y;
}

Variable AdaptableLayer::RunByOutputs(Pass& pass, const WeightProduct& product, const Variable& x,
                                      Parameter* bias, const FeatureLeaves& outputs) {
  const Variables readers = FanOut(pass.tape, x, static_cast<int64_t>(outputs.size()));
  Variable y = SlicedOutputs(pass.tape, product, readers, weight_, bias, outputs);
  for (const Adapter& adapter : adapters_) y = adapter.Add(pass, readers, std::move(y), outputs);
  return y;
}

Variable AdaptableLayer::RunByInputs(Pass& pass, const WeightProduct& product, const Variable& x,
                                     const FeatureLeaves& inputs, const Variable* adapted) {
  LeafSum sum = SlicedInputs(pass.tape, product, x, weight_, inputs);
  for (const Adapter& adapter : adapters_) {
    sum = adapter.Add(pass, adapted != nullptr ? *adapted : x, std::move(sum), inputs);
  }
  return AddUp(pass.tape, std::move(sum));
}

void AdaptableLayer::CutAdapters(const FeatureCut& cut) {
  for (Adapter& adapter : adapters_) {
    if (!cut.is_cut()) continue;
    cut.style == SplitStyle::kRow ? adapter.CutInputs(cut.leaves())
                                  : adapter.CutOutputs(cut.leaves());
  }
}

void AdaptableLayer::SplitAdapterOutputs(const Slice& of_layer, SplitGroup& group) {
  for (Adapter& adapter : adapters_) adapter.SplitOutputs(of_layer, group);
}

void AdaptableLayer::SplitAdapterInputs(const Slice& of_layer, SplitGroup& group) {
  for (Adapter& adapter : adapters_) adapter.SplitInputs(of_layer, group);
}

void AdaptableLayer::SplitAdapterTokens(SplitGroup& group) {
  for (Adapter& adapter : adapters_) adapter.SplitTokens(group);
}

}  // namespace lockstep
