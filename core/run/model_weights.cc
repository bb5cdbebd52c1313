#include "core/run/model_weights.h"

#include <utility>

namespace lockstep {
namespace {

Tensor OrNothing(const Tensor& tensor, Allocator& allocator, DType dtype = DType::kF32) {
  if (tensor.defined()) return tensor;
  return Tensor::Empty(allocator, {0}, dtype, MemoryClass::kParameters);
}

}  // namespace

std::vector<StateTensor> WeightsOf(const Model& model, Allocator& allocator) {
  std::vector<StateTensor> weights;
  for (const Parameter* parameter : model.Parameters()) {
    if (parameter->tied_to != nullptr) continue;
    weights.push_back({.name = parameter->name,
                       .tensor = OrNothing(parameter->value, allocator),
                       .full_shape = parameter->shape,
                       .is_frozen = !parameter->trainable});
  }
  for (StateTensor& tensor : StatisticsOf(model, allocator)) weights.push_back(std::move(tensor));
  return weights;
}

std::vector<StateTensor> StatisticsOf(const Model& model, Allocator& allocator) {
  std::vector<StateTensor> statistics;
  for (const RunningStatistics* layer : model.Statistics()) {
    const auto add = [&](const char* what, const Tensor& tensor) {
      statistics.push_back({.name = layer->name + what,
                            .tensor = OrNothing(tensor, allocator),
                            .full_shape = {layer->channels},
                            .slice = tensor.defined() ? layer->slice : std::nullopt,
                            .is_frozen = layer->frozen});
    };
    add(".running_mean", layer->mean);
    add(".running_var", layer->variance);
    if (layer->momentum) continue;
    statistics.push_back({.name = layer->name + ".updates",
                          .tensor = OrNothing(layer->updates, allocator, DType::kI64),
                          .full_shape = {1}});
  }
  return statistics;
}

}  // namespace lockstep
