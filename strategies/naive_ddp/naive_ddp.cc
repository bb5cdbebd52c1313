#include "strategies/naive_ddp/naive_ddp.h"

#include <memory>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/run/replica.h"
#include "core/run/updater.h"

namespace lockstep {
namespace {

class NaiveDdp : public Strategy {
 public:
  explicit NaiveDdp(StrategyInputs inputs)
      : ranks_(inputs.rank.mesh.dp()),
        count_(inputs.settings.cut.micro_batches),
        replica_(inputs.rank, std::move(inputs.model), inputs.settings, inputs.targets_per_sample),
        trained_((replica_.AllocateGradients(), replica_.Trained())),
        updater_(inputs.rank, inputs.settings, trained_) {}

  MicroBatchRange micro_batches() const override {
    return {.first = ranks_.rank() * count_, .count = count_};
  }

  StepResult TrainStep(int64_t step, BatchSource& batches) override {
    replica_.Clear(updater_.loss_scale());
    for (int64_t i = 0; i < count_; ++i) {
      replica_.ForwardBackward(step, micro_batches().first + i, batches.Next());
    }
    replica_.CompleteGradients();
    // This is all that data parallelism adds to `single`.
    for (const TrainedTensor& tensor : trained_) {
      ThrowIfError(
          ranks_.AllReduce(tensor.gradient, tensor.gradient, ReduceOp::kSum, "gradients").Wait());
    }
    ThrowIfError(replica_.SumStatistics(ranks_).Wait());
    const double loss = replica_.SumLoss(ranks_);

    StepResult result = updater_.Step(step, trained_);
    if (!result.skipped) replica_.UpdateStatistics();
    result.loss = loss;
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
    for (const TrainedTensor& tensor : trained_) {
      gradients += static_cast<double>(tensor.gradient.bytes());
    }
    const auto add = [&](const char* label, double bytes) {
      prediction.AddCollective(Operation::kAllReduce, label, ranks_.size(), bytes);
    };
    add("gradients", gradients);
    add("loss", sizeof(ExactSum));
    if (replica_.statistics().defined()) {
      add("statistics", static_cast<double>(replica_.statistics().bytes()));
    }
    return prediction;
  }

 private:
  Communicator& ranks_;
  const int64_t count_;  // micro-batches of a rank
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
                             {"mesh.tp", "1", "tp"}}};
  strategy.check = [](const Config&, const Settings& settings) {
    return CheckOneShardARank(settings.mesh, settings.cut);
  };
  strategy.make = [](StrategyInputs inputs) -> std::unique_ptr<Strategy> {
    return std::make_unique<NaiveDdp>(std::move(inputs));
  };
  return strategy;
}

}  // namespace lockstep
