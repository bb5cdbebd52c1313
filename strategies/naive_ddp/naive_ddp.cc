#include "strategies/naive_ddp/naive_ddp.h"

#include <memory>
#include <numeric>  // std::iota
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/config/cut_settings.h"
#include "core/run/strategy/replica.h"
#include "core/run/strategy/updater.h"

namespace lockstep {
namespace {

class NaiveDdp : public Strategy {
 public:
  explicit NaiveDdp(StrategyInputs inputs)
      : ranks_(inputs.rank.mesh.dp()),
        settings_(inputs.settings),
        replica_(inputs.rank, std::move(inputs.model), inputs.settings, inputs.targets_per_sample),
        trained_((replica_.AllocateGradients(), replica_.Trained())),
        updater_(inputs.rank, inputs.settings, trained_) {}

  std::vector<int64_t> micro_batches() const override {
    std::vector<int64_t> own(settings_.micro_batches_of_rank());
    std::iota(own.begin(), own.end(), ranks_.rank() * settings_.micro_batches_of_rank());
    return own;
  }

  StepResult TrainStep(int64_t step, BatchSource& batches) override {
    replica_.Clear(updater_.loss_scale());
    for (const int64_t micro_batch : micro_batches()) {
      replica_.ForwardBackward(step, micro_batch, batches.Next());
      if ((micro_batch + 1) % settings_.cut.micro_batches == 0) replica_.EndShard();
    }
    batches.FetchAhead();
    // This is all that data parallelism adds to `single`.
    for (const Parameter* use : replica_.uses()) {
      replica_.HandOverGradient(*use, use->gradient);
      ThrowIfError(
          ranks_.AllReduce(use->gradient, use->gradient, ReduceOp::kSum, "gradients").Wait());
    }
    replica_.AddTiedGradients();
    replica_.ShareStatistics();
    const double loss = replica_.MeanLoss(&ranks_);

    StepResult result = updater_.Step(step, loss, trained_);
    if (!result.skipped) replica_.UpdateStatistics();
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
    double gradients = 0;  // bytes
    for (const Parameter* use : replica_.uses()) {
      gradients += static_cast<double>(use->gradient.bytes());
    }
    const auto add = [&](const char* label, double bytes) {
      prediction.AddCollective(Operation::kAllReduce, label, ranks_.size(), bytes);
    };
    add("gradients", gradients);
    add("loss", sizeof(ExactSum));
    return prediction;
  }

 private:
  Communicator& ranks_;
  const Settings& settings_;
  Replica replica_;
  std::vector<TrainedTensor> trained_;
  Updater updater_;
};

}  // namespace

StrategyDefinition NaiveDdpStrategy() {
  StrategyDefinition strategy;
  strategy.name = "naive_ddp";
  strategy.keys = {.defaults = "mesh.dp = 2",
                   .fixed = {{"mesh.pp", "1", "layerwise or gpipe"},
                             {"mesh.replicas", "1", "ddp"},
                             {"mesh.cp", "1", "cp"},
                             {"mesh.ep", "1", "ep"},
                             {"mesh.tp", "1", "tp"}}};
  strategy.check = [](const Config&, const Settings& settings) {
    return CheckShards(settings.mesh, settings.cut, ShardAssignment::kConsecutive);
  };
  strategy.make = [](StrategyInputs inputs) -> std::unique_ptr<Strategy> {
    return std::make_unique<NaiveDdp>(std::move(inputs));
  };
  return strategy;
}

}  // namespace lockstep
