#pragma once

#include <cstdint>
#include <functional>
#include <iterator>  // std::ssize
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/autograd/operations.h"
#include "core/base/exact_sum.h"
#include "core/config/settings.h"
#include "core/layout/model_layout.h"
#include "core/nn/loss_in_runs.h"
#include "core/nn/model.h"
#include "core/run/strategy/model_weights.h"
#include "core/run/strategy/rank.h"
#include "core/run/strategy/shard_sum.h"
#include "core/run/strategy/strategy.h"

namespace lockstep {

// After the last micro-batch of a shard: adds what token leaves and feature leaves have contributed
// to a parameter's gradient, features inside tokens; the sum of each of Parameter::shard_sources by
// itself. Where the gradient received nothing it becomes
// -0, which changes no sum, not even the sign of a zero. Where ranks along tp or cp have parts,
// sums these; then throws StatusException when a peer fails.
void CompleteGradient(Kernels& kernels, Parameter& parameter);

// The skips that leave a range of blocks, and those that come into it, in the order in which they
// are popped.
struct SkipEnds {
  std::vector<SkipPath> in, out;
};
SkipEnds SkipEndsOf(const Model& model, const BlockRange& blocks);

// How many elements the layers' sums of statistics take, one behind the other.
int64_t StatisticsElements(const std::vector<RunningStatistics*>& layers);

// The blocks of a model that one rank holds: their parameters, gradients and running statistics,
// and passes through them (stage_pass.h). The blocks are one range of consecutive blocks, or
// several ranges where a pipeline gives the rank several stages. The other blocks of the model are
// known here by name and shape; they have no memory.
//
// Every use of a tied parameter has a gradient of its own, which is summed over micro-batches,
// shards and ranks by itself; the uses are added last, in the model's order. A parameter here that
// is tied to a parameter of another rank is a tied copy: it has a value of its own too, which
// starts with the owner's bits. strategies/stages/tied_parameters.h sends gradients and values
// between the two.
class LocalModel {
 public:
  // Gives parameters their values, or the means to have them when they are needed.
  using ValueMaker = std::function<void(Model&, const ModelLayout&, int place)>;

  // Gives the parameters memory and initial values, or has `make_values` do it. Where less than
  // fp32 is computed with, the values that the optimizer updates are fp32 masters beside them.
  // Blocks appear in the rank's trace from here on. The blocks are those that `layout`, which
  // describes the model, gives to its rank `place`.
  LocalModel(Rank& rank, Model&& model, ModelLayout layout, int place, const Settings& settings,
             int64_t targets_per_sample, const ValueMaker& make_values = nullptr);
  // Without a layout: this rank has the blocks in `ranges`, which are in the order of the model, as
  // all have among whom the batch is divided.
  LocalModel(Rank& rank, Model&& model, const std::vector<BlockRange>& ranges,
             const Settings& settings, int64_t targets_per_sample);

  Rank& rank() const { return rank_; }
  Model& model() { return model_; }
  const Model& model() const { return model_; }
  const ModelLayout& layout() const { return layout_; }
  const std::vector<BlockRange>& ranges() const { return ranges_; }
  uint64_t seed() const { return settings_.seed; }
  // Rows of a run of the loss; 0: all at once.
  int64_t loss_rows() const { return settings_.loss.rows; }
  // Samples of a micro-batch, by its number in the step.
  int64_t samples_of(int64_t micro_batch) const { return settings_.samples_of(micro_batch); }
  // How the tokens of so many samples lie; see Pass.
  TokenOrder Tokens(int64_t samples) const {
    const ContextGroup* context = model_.context;
    return {.samples = samples,
            .time = targets_per_sample_,
            .leaves = settings_.cut.tokens,
            .runs = context == nullptr ? 1 : context->size(),
            .run = context == nullptr ? 0 : context->index()};
  }
  // Samples of a batch, from its inputs.
  int64_t SamplesIn(const Tensor& inputs) const {
    return inputs.shape()[0] / Tokens(1).held_leaves();
  }
  // Whether blocks end in the loss, and whether those here take batches in, and end in the loss.
  bool IsLast(const BlockRange& blocks) const { return blocks.end == std::ssize(model_.blocks); }
  bool has_first() const { return ranges_.front().begin == 0; }
  bool has_last() const { return IsLast(ranges_.back()); }

  // Gives memory to the gradients that have none yet, and to their partial sums over the rank's
  // shards; those that a strategy has laid out stay.
  void AllocateGradients();

  // Starts a step: gradients, statistics and loss begin anew. Gradients are those of the loss times
  // `loss_scale`.
  void Clear(double loss_scale);

  // What each target's loss is multiplied by for the gradients.
  float loss_factor() const { return static_cast<float>(loss_scale_ / target_count_); }

  // A batch's inputs as the first block takes them: floating ones in the compute dtype.
  Variables Enter(const Tensor& inputs);
  // Before the losses of a step's micro-batches: how many targets its global batch has.
  void CountTargets(const Batch& batch);
  // What a training pass is to have the last block do with these targets; none where the logits are
  // whole.
  std::optional<LossInRuns> RunsOfLoss(const Tensor& targets) const;
  // Behind the last block: the loss of a micro-batch, from which backward starts; and its part in
  // MeanLoss(). `outputs` are logits, or losses where the pass has had them made in runs.
  CrossEntropy Loss(Pass& pass, Variable outputs, const Tensor& targets);
  void AddLoss(const CrossEntropy& result);

  // The mean loss over all targets of the global batch, from the losses since Clear, here and on
  // the other `ranks`, if any. Waits for the device: called once, after all micro-batches. Throws
  // StatusException.
  double MeanLoss(Communicator* ranks = nullptr);

  // All trained parameters here, tied ones too, in the order of first use: what receives gradients.
  const std::vector<Parameter*>& uses() const { return uses_; }
  // The parameters of uses() that own their value: what an optimizer updates.
  const std::vector<Parameter*>& parameters() const { return parameters_; }

  // Ends a shard of the batch for one of uses(), whose gradient joins those of the shards before.
  // Returns whether this was the rank's last shard: then the gradient is the sum of all; else the
  // next contribution begins anew. Without AllocateGradients the caller takes each shard's
  // gradient, and sums: every shard is complete, and the next contribution begins anew.
  bool EndShard(Parameter& use);
  // Called before ranks sum or exchange what each of them has: lets whoever searches the step see
  // this rank's part, `what` in words, or what it holds of a use's gradient.
  void HandOver(const std::string& what, const Tensor& part) const;
  void HandOverGradient(const Parameter& use, const Tensor& held) const;
  // A tensor for each trained parameter of the whole model that owns its value, in the order of
  // first use: of those that other ranks hold, empty ones. So all ranks name the same tensors.
  // `made`: of the parameters that the stage did not make itself.
  using TrainedByName = std::unordered_map<std::string, TrainedTensor>;
  std::vector<TrainedTensor> Trained(const TrainedByName& made = {}) const;

  // How often the running estimate of a layer moves.
  enum class Moves { kEachStep, kEachMicroBatch };
  // The layers of a range whose estimates move so often, in the order of the blocks.
  std::vector<RunningStatistics*> StatisticsOf(const BlockRange& blocks, Moves moves) const;
  // The sums of the batch statistics of all layers here whose estimates move each step, as one flat
  // tensor: one layer behind the other, as the ranges are. Undefined without any.
  const Tensor& statistics() const { return statistics_; }
  // Moves the estimates of these layers once statistics() holds the sums of all micro-batches of
  // the step.
  void UpdateStatistics();

  // After the masters have changed by other means than the optimizer: rounds them to what is
  // computed with.
  void RoundMasters();

  // Parameters (the masters of what is trained, in the order of Trained, and then what is frozen)
  // and running estimates, for a checkpoint, as the layout places them. They name those of the
  // whole model. `values`: of the parameters that the stage did not make itself.
  std::vector<StateTensor> State(NamedTensors values = {}) const;

  // Bytes of parameters, gradients and optimizer state that are kept, by the layout, and of partial
  // sums.
  CostPrediction Predict() const;

 private:
  // A parameter of the model that owns its value.
  struct Owner {
    Parameter* parameter;
    bool is_here;
    // The value itself in fp32, or as it is computed with where it is frozen; empty where another
    // rank holds it.
    Tensor master;
  };

  std::vector<Block*> OwnBlocks() const;
  Moves MovesOf(const RunningStatistics& layer) const;
  void ListParameters();
  void MakeValues();
  void MakeAccumulators();
  Tensor Draw(const Parameter& parameter, DType dtype) const;

  Rank& rank_;
  Model model_;
  ModelLayout layout_;
  int place_;
  std::vector<BlockRange> ranges_;
  const Settings& settings_;
  int64_t targets_per_sample_;
  double target_count_;  // of the global batch, without ignored ones
  std::vector<Owner> owners_;
  std::vector<Parameter*> parameters_;
  std::vector<Parameter*> tied_copies_;  // tied to a parameter of another rank
  std::vector<Parameter*> uses_;
  // By use, the sum over shards of each of its shard sources.
  std::unordered_map<const Parameter*, std::vector<ShardSum>> gradient_sums_;
  std::vector<RunningStatistics*> layers_;       // that gather statistics
  std::vector<RunningStatistics*> step_layers_;  // those of them whose estimates move each step
  Tensor statistics_;
  std::vector<Tensor> losses_;  // of micro-batches
  double loss_scale_ = 1;
};

}  // namespace lockstep
