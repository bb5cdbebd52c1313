#include "core/run/leg/run_tensors.h"

#include "core/base/status.h"

namespace lockstep {

std::shared_ptr<const std::vector<ModelTensor>> RunTensors::Get() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (tensors_ == nullptr) {
    absl::StatusOr<Model> model = make_model_();
    ThrowIfError(model.status());
    tensors_ =
        std::make_shared<const std::vector<ModelTensor>>(TensorsOf(*model, mesh_.tp, mesh_.ep));
  }
  return tensors_;
}

}  // namespace lockstep
