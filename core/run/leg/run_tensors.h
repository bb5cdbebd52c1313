#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/comm/mesh_shape.h"
#include "core/layout/model_tensors.h"
#include "core/nn/model.h"

namespace lockstep {

// The tensors of a run's model, as all ranks of its mesh divide them. They are described once, for
// the first rank of this process that asks. Any thread may call it.
class RunTensors {
 public:
  using ModelMaker = std::function<absl::StatusOr<Model>()>;

  // What `make_model` returns can be split by mesh.tp ranks, and its experts divided by mesh.ep.
  RunTensors(ModelMaker make_model, const MeshShape& mesh)
      : make_model_(std::move(make_model)), mesh_(mesh) {}

  // Throws StatusException: what `make_model` returns.
  std::shared_ptr<const std::vector<ModelTensor>> Get();

 private:
  const ModelMaker make_model_;
  const MeshShape mesh_;
  std::mutex mutex_;
  std::shared_ptr<const std::vector<ModelTensor>> tensors_;  // null before the first call
};

}  // namespace lockstep
