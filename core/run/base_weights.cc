#include "core/run/base_weights.h"

#include <algorithm>
#include <iterator>  // std::back_inserter

#include "core/base/status.h"
#include "core/checkpoint/weights.h"

namespace lockstep {

std::vector<StateTensor> FrozenState(const std::vector<StateTensor>& state) {
  std::vector<StateTensor> part;
  std::copy_if(state.begin(), state.end(), std::back_inserter(part),
               [](const StateTensor& tensor) { return tensor.is_frozen; });
  return part;
}

std::vector<StateTensor> TrainedState(const std::vector<StateTensor>& state) {
  std::vector<StateTensor> part;
  std::copy_if(state.begin(), state.end(), std::back_inserter(part),
               [](const StateTensor& tensor) { return !tensor.is_frozen; });
  return part;
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
