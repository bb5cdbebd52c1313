#include "strategies/single/single.h"

#include <memory>
#include <numeric>  // std::iota
#include <utility>
#include <vector>

#include "core/run/strategy/expert_loads.h"
#include "core/run/strategy/replica.h"
#include "core/run/strategy/updater.h"

namespace lockstep {
namespace {

class Single : public Strategy {
 public:
  explicit Single(StrategyInputs inputs)
      : cut_(inputs.settings.cut),
        replica_(inputs.rank, std::move(inputs.model), inputs.settings, inputs.targets_per_sample),
        trained_((replica_.AllocateGradients(), replica_.Trained())),
        updater_(inputs.rank, inputs.settings, trained_) {}

  std::vector<int64_t> micro_batches() const override {
    std::vector<int64_t> all(cut_.shards * cut_.micro_batches);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  StepResult TrainStep(int64_t step, BatchSource& batches) override {
    replica_.Clear(updater_.loss_scale());
    for (int64_t shard = 0; shard < cut_.shards; ++shard) {
      for (int64_t i = 0; i < cut_.micro_batches; ++i) {
        replica_.ForwardBackward(step, shard * cut_.micro_batches + i, batches.Next());
      }
      replica_.EndShard();
    }
    batches.FetchAhead();
    replica_.AddTiedGradients();
    const double loss = replica_.MeanLoss();
    StepResult result = updater_.Step(step, loss, trained_);
    if (!result.skipped) replica_.UpdateStatistics();
    result.expert_load = ExpertLoads(replica_);
    return result;
  }

  EvaluationSums Evaluate(const Batch& batch) override { return replica_.Evaluate(batch); }

  const ModelLayout& layout() const override { return replica_.layout(); }

  std::vector<StateTensor> State() override {
    std::vector<StateTensor> state = replica_.State();
    for (StateTensor& tensor : updater_.State(state)) state.push_back(std::move(tensor));
    return state;
  }

  void Restored() override {
    replica_.RoundMasters();
    updater_.Restored();
  }

  CostPrediction Predict() const override {
    CostPrediction prediction = replica_.Predict();
    updater_.AddTo(prediction);
    return prediction;
  }

 private:
  const CutSettings& cut_;
  Replica replica_;
  std::vector<TrainedTensor> trained_;
  Updater updater_;
};

}  // namespace

StrategyDefinition SingleStrategy() {
  StrategyDefinition strategy;
  strategy.name = "single";
  strategy.keys.fixed = {{"mesh.pp", "1", "layerwise, gpipe or fsdp_pipe"},
                         {"mesh.replicas", "1", "any of the others"},
                         {"mesh.dp", "1", "any of the others"},
                         {"mesh.cp", "1", "cp"},
                         {"mesh.ep", "1", "ep"},
                         {"mesh.tp", "1", "tp"}};
  strategy.make = [](StrategyInputs inputs) -> std::unique_ptr<Strategy> {
    return std::make_unique<Single>(std::move(inputs));
  };
  return strategy;
}

}  // namespace lockstep
