#include "core/run/model_weights.h"

#include "core/layout/model_tensors.h"
#include "glog/logging.h"

namespace lockstep {

void AddStatistics(const Model& model, NamedTensors& values) {
  for (const RunningStatistics* layer : model.Statistics()) {
    values[layer->name + ".running_mean"] = layer->mean;
    values[layer->name + ".running_var"] = layer->variance;
    values[layer->name + ".updates"] = layer->updates;
  }
}

std::vector<StateTensor> StateOf(const std::vector<TensorPlacement>& placements,
                                 const NamedTensors& values, Allocator& allocator) {
  std::vector<StateTensor> state;
  for (const TensorPlacement& placement : placements) {
    const TensorSlice& part = placement.held;
    StateTensor tensor = {.name = placement.name,
                          .tensor = {},
                          .full_shape = Shape(part.whole),
                          .first = part.first,
                          .is_writer = placement.is_writer,
                          .slice = part.slice,
                          .is_frozen = placement.is_frozen};
    const auto found = values.find(placement.name);
    if (found != values.end() && found->second.defined()) {
      tensor.tensor = found->second;
      CHECK_EQ(tensor.tensor.elements(), part.elements + placement.padding) << placement.name;
      if (placement.padding > 0) tensor.tensor = tensor.tensor.View(0, {part.elements});
    } else {
      tensor.tensor = Tensor::Empty(allocator, {0}, placement.dtype, MemoryClass::kParameters);
    }
    CHECK(tensor.tensor.dtype() == placement.dtype) << placement.name;
    state.push_back(std::move(tensor));
  }
  return state;
}

std::vector<StateTensor> WeightsOf(const Model& model, Allocator& allocator) {
  NamedTensors values;
  for (const Parameter* parameter : model.Parameters()) values[parameter->name] = parameter->value;
  AddStatistics(model, values);
  ModelLayout layout(TensorsOf(model), {});
  return StateOf(layout.Of(0), values, allocator);
}

}  // namespace lockstep
