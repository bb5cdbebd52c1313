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
        totals_((replica_.AllocateGradients(), replica_.Trained())),
        updater_(inputs.rank, inputs.settings, totals_),
        prediction_(replica_.Predict()) {
    if (batch_.shards == 1) return;
    // The gradients of the shard in work stay where they are; their sum over shards needs as much,
    // and so does that over a group of them.
    for (TrainedTensor& total : totals_) {
      total.gradient = NewGradient(total.value.shape());
      group_sums_.push_back(batch_.shard_groups > 1 ? NewGradient(total.value.shape())
                                                    : total.gradient);
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
    double loss = 0;
    for (int64_t shard = 0; shard < batch_.shards; ++shard) {
      replica_.Clear();
      for (int64_t i = 0; i < batch_.micro_batches; ++i) {
        replica_.ForwardBackward(step, shard * batch_.micro_batches + i, batches.Next());
      }
      replica_.CompleteGradients();
      loss += replica_.loss();
      if (batch_.shards > 1) AddShard(shard);
    }
    if (statistics_.defined()) kernels_.Copy(statistics_, replica_.statistics());
    replica_.UpdateStatistics();
    StepResult result = updater_.Step(step, totals_);
    result.loss = loss;
    return result;
  }

  EvaluationSums Evaluate(const Batch& batch) override { return replica_.Evaluate(batch); }

  std::vector<StateTensor> State() override {
    std::vector<StateTensor> state = replica_.State();
    for (StateTensor& tensor : updater_.State(state)) state.push_back(std::move(tensor));
    return state;
  }

  CostPrediction Predict() const override { return prediction_; }

 private:
  Tensor NewGradient(const Shape& shape) {
    Tensor gradient = kernels_.Empty(shape, DType::kF32, MemoryClass::kGradients);
    prediction_.memory[1].bytes += gradient.bytes();
    return gradient;
  }

  // Part number `index` of a sum: ((part 0 + part 1) + part 2) + ...
  void Accumulate(int64_t index, const Tensor& part, const Tensor& sum) {
    if (index == 0) {
      kernels_.Copy(part, sum);
    } else {
      kernels_.Add(sum, part, sum);
    }
  }

  void AddShard(int64_t shard) {
    const int64_t in_group = batch_.shards / batch_.shard_groups;
    const std::vector<Parameter*>& parameters = replica_.parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      Accumulate(shard % in_group, parameters[i]->gradient, group_sums_[i]);
      if (batch_.shard_groups > 1 && (shard + 1) % in_group == 0) {
        Accumulate(shard / in_group, group_sums_[i], totals_[i].gradient);
      }
    }
    if (statistics_.defined()) Accumulate(shard, replica_.statistics(), statistics_);
  }

  Kernels& kernels_;
  const BatchSettings& batch_;
  Replica replica_;
  std::vector<TrainedTensor> totals_;  // gradients summed over shards
  std::vector<Tensor> group_sums_;     // over those of a group; where there is one, the totals
  Tensor statistics_;                  // summed over shards; undefined for one shard
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
