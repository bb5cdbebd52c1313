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
    // The gradients of the shard in work stay where they are; the sum over those before it is kept
    // in fp32, as ranks reduce: rounded once.
    for (const TrainedTensor& trained : trained_) {
      totals_.push_back(
          kernels_.Empty(trained.value.shape(), DType::kF32, MemoryClass::kGradients));
      prediction_.memory[1].bytes += totals_.back().bytes();
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
      replica_.Clear(updater_.loss_scale());
      for (int64_t i = 0; i < batch_.micro_batches; ++i) {
        replica_.ForwardBackward(step, shard * batch_.micro_batches + i, batches.Next());
      }
      replica_.CompleteGradients();
      loss += replica_.loss();
      if (batch_.shards > 1) AddShard(shard);
    }
    StepResult result = updater_.Step(step, trained_);
    if (!result.skipped) replica_.UpdateStatistics();
    result.loss = loss;
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
  // ((shard 0 + shard 1) + shard 2) + ..., the last sum in place of the last shard's part.
  void Accumulate(int64_t shard, const Tensor& part, const Tensor& total) {
    if (shard == 0) {
      kernels_.Cast(part, total);
    } else {
      kernels_.Add(total, part, shard + 1 < batch_.shards ? total : part);
    }
  }

  void AddShard(int64_t shard) {
    for (size_t i = 0; i < trained_.size(); ++i) {
      Accumulate(shard, trained_[i].gradient, totals_[i]);
    }
    if (statistics_.defined()) Accumulate(shard, replica_.statistics(), statistics_);
  }

  Kernels& kernels_;
  const BatchSettings& batch_;
  Replica replica_;
  std::vector<TrainedTensor> trained_;
  // Sums over the shards before the one in work, of gradients and statistics; none for one shard.
  std::vector<Tensor> totals_;
  Tensor statistics_;
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
