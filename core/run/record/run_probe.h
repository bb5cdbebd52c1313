#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "core/checkpoint/state_tensor.h"
#include "core/comm/mesh.h"
#include "core/config/probe_settings.h"
#include "core/kernels/kernels.h"
#include "core/nn/model.h"
#include "core/nn/probe.h"
#include "core/optim/optimizer.h"
#include "core/probe/probe_file.h"

namespace lockstep {

// Places that belong to no layer. All patterns name them.
inline constexpr char kProbedInputs[] = "batch.inputs";
inline constexpr char kProbedTargets[] = "batch.targets";
inline constexpr char kProbedLosses[] = "losses";

// Whether each of the patterns names a parameter, a layer, or a module around one. InvalidArgument.
absl::Status CheckProbedPlaces(const ProbeSettings& settings, const Model& model);

// Writes down what passes through one rank in the probed steps, as core/probe/probe_file.h has it:
// values and gradients of blocks and layers, gradients of parameters, numbers, and state. Members
// throw StatusException where a file cannot be written.
class RunProbe final : public PassProbe {
 public:
  // `folder` is made with the first file. Mesh and kernels outlive the probe.
  RunProbe(ProbeSettings settings, ProbeHeader header, Mesh& mesh, Kernels& kernels,
           std::string folder);

  // Whether the present step is probed.
  bool is_on() const { return writer_ != nullptr; }

  // Begins a step, if it is one to probe. `state` says which elements the rank has of what is
  // trained; before the first probed step it is written down too.
  void BeginStep(int64_t step, const std::vector<StateTensor>& state);

  // All of these require is_on().
  void Observe(const ProbedTensor& tensor, const Tensor& value) override;
  // The gradient of a use of a parameter for the next of the rank's shards, complete over token and
  // feature leaves but for what ranks along cp sum later.
  void ShardGradient(const Parameter& use);
  // The gradients of the whole batch, as the optimizer gets them: times the loss scale, not
  // clipped.
  void Gradients(const std::vector<TrainedTensor>& trained);
  void Number(const std::string& name, double value);
  // Writes down the state after the step, and the step's files.
  absl::Status EndStep(const std::vector<StateTensor>& state);

 private:
  bool IsProbed(const std::string& place) const;
  void State(ProbeKind kind, const std::vector<StateTensor>& state);
  void Add(ProbeRecord record, const Tensor& tensor);

  const ProbeSettings settings_;
  ProbeHeader header_;
  Mesh& mesh_;
  Kernels& kernels_;
  const std::string folder_;
  std::unique_ptr<ProbeWriter> writer_;                // null: the step is not probed
  std::unordered_map<std::string, TensorSlice> held_;  // of what is trained, by name
  std::vector<int64_t> shards_;                        // seen in the step, in order
  std::map<const Parameter*, size_t> ended_shards_;    // of the step, by use
  std::vector<uint8_t> bytes_;
};

}  // namespace lockstep
