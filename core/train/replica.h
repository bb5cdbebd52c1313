#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/data/dataset.h"
#include "core/nn/model.h"
#include "core/train/rank.h"
#include "core/train/settings.h"
#include "core/train/strategy.h"

namespace lockstep {

// What a strategy does beside the backward of a micro-batch.
struct BackwardHooks {
  std::function<void(const Tape&)> before = [](const Tape&) {};
  std::function<void(Leaf&)> leaf_ready = nullptr;  // see Tape::OnLeafReady
};

// After the last micro-batch that adds to a sum: adds the gradients of the parameters that are tied
// to `parameter` to its own, or zeroes it if none received anything, so that it is defined.
void CompleteGradient(Kernels& kernels, Parameter& parameter, const std::vector<Parameter*>& tied);

// A model on one rank: its memory, and passes through it. What strategies share whose ranks each
// run the whole model.
class Replica {
 public:
  // Gives parameters their values, or the means to have them when they are needed.
  using ValueMaker = std::function<void(Model&)>;

  // Gives the parameters memory and initial values, or has `make_values` do it. Where less than
  // fp32 is computed with, the values that the optimizer updates are fp32 masters beside them.
  // Blocks appear in the rank's trace from here on.
  Replica(Rank& rank, Model model, const Settings& settings, int64_t targets_per_sample,
          const ValueMaker& make_values = nullptr);

  // Gives memory to the gradients that have none yet; those that a strategy has laid out stay.
  void AllocateGradients();

  // Runs one micro-batch forward and backward. Gradients and batch statistics add up until the next
  // Clear; the sum of its losses, divided by the global count of targets, is added to loss().
  void ForwardBackward(int64_t step, int64_t micro_batch, const Batch& batch,
                       const BackwardHooks& hooks = {});

  EvaluationSums Evaluate(const Batch& batch);

  // Starts a shard: gradients, statistics and loss begin anew. Gradients are those of the loss
  // times `loss_scale`.
  void Clear(double loss_scale);

  // CompleteGradient of one of parameters(), or of all.
  void CompleteGradient(Parameter& parameter);
  void CompleteGradients();

  double loss() const { return loss_; }
  // Of all ranks together, added in rank order. Throws StatusException.
  double SumLoss(Communicator& ranks);
  // Begins to sum the batch statistics over the ranks; nothing without any.
  Work SumStatistics(Communicator& ranks);
  Model& model() { return model_; }
  const Model& model() const { return model_; }
  // All parameters that own their value, in the order of first use; what an optimizer updates.
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  // Those tied to `parameter`.
  std::vector<Parameter*> TiedTo(const Parameter& parameter) const;
  std::vector<TrainedTensor> Trained() const;

  // The sums of the batch statistics of all layers as one flat tensor; undefined without any.
  const Tensor& statistics() const { return statistics_; }
  // Moves the running estimates once statistics() holds the sums of all micro-batches of the step.
  void UpdateStatistics();

  // After the masters have changed by other means than the optimizer: rounds them to what is
  // computed with.
  void RoundMasters();

  // Parameters (their masters) and running estimates, for a checkpoint; and the latter alone.
  std::vector<StateTensor> State() const;
  std::vector<StateTensor> StatisticsState() const;

  // Bytes of parameters, gradients and optimizer state as the design counts them, where all are
  // there in full; and of what batch normalisation keeps.
  CostPrediction Predict() const;
  int64_t statistics_bytes() const;

 private:
  void MakeMasters();
  Variables RunBlocks(Pass& pass, const Tensor& inputs);

  Rank& rank_;
  Model model_;
  const Settings& settings_;
  double target_count_;  // of the global batch
  std::vector<Parameter*> all_parameters_, parameters_;
  std::vector<Tensor> masters_;  // of parameters_: the values themselves in fp32
  std::vector<RunningStatistics*> layers_;
  Tensor statistics_;
  double loss_ = 0;
  double loss_scale_ = 1;
};

}  // namespace lockstep
