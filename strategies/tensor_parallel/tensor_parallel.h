#pragma once

#include <set>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/config/config.h"
#include "core/nn/model.h"
#include "core/optim/optimizer.h"
#include "core/run/strategy/local_model.h"
#include "core/run/strategy/strategy.h"
#include "strategies/recompute/checkpointing.h"
#include "strategies/tensor_parallel/tensor_group.h"

namespace lockstep {

// The table of the configuration:
//
//   sequence_parallel (false)  also what lies between split layers (norms, dropout, residuals) is
//                              divided, by tokens; all-gathers and reduce-scatters take the place
//                              of the sums (Korthikanti et al. 2022)
inline constexpr char kTensorParallelTable[] = "tensor_parallel";

// Whether the table is right by itself.
absl::Status CheckTensorParallelOptions(const Config& config);

// Whether mesh.tp ranks can compute the model's layers together. InvalidArgument with all that do
// not divide.
absl::Status CheckTensorParallelModel(const Config& config, const Settings& settings,
                                      const Model& model);

// What a rank does about tensor parallelism beside what its strategy does: the ranks along tp have
// the same blocks and the same micro-batches, each with its slice of the weights. Where the mesh
// has no such ranks, members do nothing and cost nothing.
//
//   TensorParallel tensor(inputs);
//   LocalModel local_model(rank, tensor.Split(std::move(inputs.model)), ...);
//   auto trained = tensor.Prepare(local_model.Trained());
//   Updater updater(rank, settings, trained, {&tensor.ranks(), ...});
//   ... forward, backward, sums over the shards of the batch ...
//   updater.Step(step, loss, trained);
class TensorParallel {
 public:
  explicit TensorParallel(const StrategyInputs& inputs);

  // The ranks that compute a layer together, in the order of their slices.
  Communicator& ranks() const { return ranks_; }

  // This rank's slice of a model without memory, which this outlives.
  Model Split(Model model);

  // Marks which of the tensors that this rank trains count in the norm here.
  std::vector<TrainedTensor> Prepare(std::vector<TrainedTensor> trained) const;

  // The fraction of the tokens between blocks that this rank has, and hands on to other stages.
  double token_fraction() const { return group_.splits_sequence() ? 1.0 / ranks_.size() : 1; }

  // Adds what this rank sends in a step, a schedule's runs of so many micro-batches, to those it
  // computes layers with. Recomputation sends the activations of forward again: those of whole
  // stages as `checkpointing` says, those of blocks and operations as the stage's blocks say.
  void AddTraffic(const LocalModel& local_model, int micro_batches, Checkpointing checkpointing,
                  CostPrediction& prediction) const;

 private:
  Communicator& ranks_;
  const Settings& settings_;
  TensorGroup group_;
  std::set<std::string> split_;  // names of parameters
};

}  // namespace lockstep
