#include "core/run/strategy/model_weights.h"

#include <utility>

#include "core/base/status.h"
#include "core/checkpoint/weights.h"
#include "core/layout/model_tensors.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

std::vector<StateTensor> Part(std::vector<StateTensor> state, bool is_frozen) {
  std::erase_if(state, [=](const StateTensor& tensor) { return tensor.is_frozen != is_frozen; });
  return state;
}

}  // namespace

void AddStatistics(const Model& model, NamedTensors& values) {
  for (const RunningStatistics* layer : model.Statistics()) {
    const auto [mean, variance] = layer->buffer_names();
    values[layer->name + mean] = layer->mean;
    values[layer->name + variance] = layer->variance;
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

std::vector<StateTensor> FrozenState(const std::vector<StateTensor>& state) {
  return Part(state, true);
}

std::vector<StateTensor> TrainedState(const std::vector<StateTensor>& state) {
  return Part(state, false);
}

std::vector<StateTensor> InitialState(const std::vector<StateTensor>& state) {
  std::vector<StateTensor> frozen = FrozenState(state);
  return frozen.empty() ? state : frozen;
}

absl::Status LoadInitialWeights(const std::string& path, const PublishedNames& names,
                                const std::vector<StateTensor>& state, Kernels& kernels) {
  const std::vector<StateTensor> part = InitialState(state);
  std::vector<StateTensor> wide = part;
  for (StateTensor& tensor : wide) {
    if (!tensor.is_frozen || tensor.tensor.dtype() == DType::kF32) continue;
    tensor.tensor = kernels.Empty(tensor.tensor.shape(), DType::kF32, MemoryClass::kParameters);
  }
  LS_RETURN_IF_ERROR(LoadWeights(path, names, wide, kernels));
  for (size_t i = 0; i < part.size(); ++i) {
    if (wide[i].tensor.dtype() != part[i].tensor.dtype()) {
      kernels.Cast(wide[i].tensor, part[i].tensor);
    }
  }
  return absl::OkStatus();
}

}  // namespace lockstep
