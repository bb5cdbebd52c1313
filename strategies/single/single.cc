#include "strategies/single/single.h"

#include <memory>
#include <utility>
#include <vector>

#include "core/train/replica.h"
#include "core/train/updater.h"

namespace lockstep {
namespace {

class Single : public Strategy {
 public:
  explicit Single(StrategyInputs inputs)
      : kernels_(inputs.rank.kernels),
        batch_(inputs.settings.batch),
        replica_(inputs.rank, std::move(inputs.model), inputs.settings, inputs.targets_per_sample),
        trained_((replica_.AllocateGradients(), replica_.Trained())),
        updater_(inputs.rank, inputs.settings, trained_),
        prediction_(replica_.Predict()) {
    updater_.AddTo(prediction_);
    if (batch_.shards == 1) return;
    // The gradients of the shard in work stay where they are; the sums over those before it are
    // kept in fp32.
    for (const TrainedTensor& trained : trained_) {
      if (InGroup() > 1) group_sums_.push_back(NewSum(trained.value.shape()));
      if (batch_.shard_groups > 1) totals_.push_back(NewSum(trained.value.shape()));
    }
    if (replica_.statistics().defined()) {
      statistics_ =
          kernels_.Empty(replica_.statistics().shape(), DType::kF32, MemoryClass::kParameters);
      prediction_.memory[0].bytes += statistics_.bytes();
    }
  }

  MicroBatchRange micro_batches() const override {
    return {.first = 0, .count = batch_.shards * batch_.micro_batches};
  }

  StepResult TrainStep(int64_t step, BatchSource& batches) override {
    ExactSum loss;
    for (int64_t shard = 0; shard < batch_.shards; ++shard) {
      replica_.Clear(updater_.loss_scale());
      for (int64_t i = 0; i < batch_.micro_batches; ++i) {
        replica_.ForwardBackward(step, shard * batch_.micro_batches + i, batches.Next());
      }
      replica_.CompleteGradients();
      loss.Add(replica_.LossSum());
      if (batch_.shards > 1) AddShard(shard);
    }
    StepResult result = updater_.Step(step, trained_);
    if (!result.skipped) replica_.UpdateStatistics();
    result.loss = replica_.MeanLoss(loss);
    return result;
  }

  EvaluationSums Evaluate(const Batch& batch) override { return replica_.Evaluate(batch); }

  std::vector<StateTensor> State() override {
    std::vector<StateTensor> state = replica_.State();
    for (StateTensor& tensor : updater_.State(state)) state.push_back(std::move(tensor));
    return state;
  }

  void Restored() override {
    replica_.RoundMasters();
    updater_.Restored();
  }

  CostPrediction Predict() const override { return prediction_; }

 private:
  int64_t InGroup() const { return batch_.shards / batch_.shard_groups; }

  Tensor NewSum(const Shape& shape) {
    Tensor sum = kernels_.Empty(shape, DType::kF32, MemoryClass::kGradients);
    prediction_.memory[1].bytes += sum.bytes();
    return sum;
  }

  // Part number `index` of `count` of a sum: ((part 0 + part 1) + part 2) + ..., kept in `sum`. The
  // last part becomes the sum itself: so it is rounded once, as where ranks reduce.
  void Fold(int64_t index, int64_t count, const Tensor& part, const Tensor& sum) {
    if (count == 1) return;
    if (index == 0) {
      kernels_.Cast(part, sum);
    } else {
      kernels_.Add(sum, part, index + 1 < count ? sum : part);
    }
  }

  void AddShard(int64_t shard) {
    const int64_t groups = batch_.shard_groups, in_group = InGroup();
    for (size_t i = 0; i < trained_.size(); ++i) {
      const Tensor& gradient = trained_[i].gradient;
      Fold(shard % in_group, in_group, gradient, in_group > 1 ? group_sums_[i] : Tensor());
      if ((shard + 1) % in_group == 0) {
        Fold(shard / in_group, groups, gradient, groups > 1 ? totals_[i] : Tensor());
      }
    }
    if (statistics_.defined()) {
      Fold(shard, batch_.shards, replica_.statistics(), statistics_);
    }
  }

  Kernels& kernels_;
  const BatchSettings& batch_;
  Replica replica_;
  std::vector<TrainedTensor> trained_;
  // Sums of gradients over the shards of a group, and over groups; none over one.
  std::vector<Tensor> group_sums_, totals_;
  Tensor statistics_;  // summed over shards; undefined for one
  Updater updater_;
  CostPrediction prediction_;
};

}  // namespace

StrategyDefinition SingleStrategy() {
  return {
      .name = "single", .axes = {}, .make = [](StrategyInputs inputs) -> std::unique_ptr<Strategy> {
        return std::make_unique<Single>(std::move(inputs));
      }};
}

}  // namespace lockstep
