#include "strategies/ddp/ddp.h"

#include <memory>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/config/config_reader.h"
#include "core/run/replica.h"
#include "core/run/updater.h"
#include "strategies/ddp/gradient_reducer.h"

namespace lockstep {
namespace {

absl::StatusOr<BucketLimits> ReadOptions(const Config& config) {
  ConfigReader reader(config.Table("ddp"));
  const BucketLimits limits = ReadBucketLimits(reader);
  LS_RETURN_IF_ERROR(reader.Finish());
  return limits;
}

class Ddp : public Strategy {
 public:
  Ddp(StrategyInputs inputs, const BucketLimits& limits)
      : ranks_(inputs.rank.mesh.dp()),
        cut_(inputs.settings.cut),
        replica_(inputs.rank, std::move(inputs.model), inputs.settings, inputs.targets_per_sample),
        reducer_(replica_, ranks_, inputs.settings.precision.reduce, limits,
                 [this](Parameter& parameter) { replica_.CompleteGradient(parameter); }),
        trained_(replica_.Trained()),
        updater_(inputs.rank, inputs.settings, trained_) {
    Broadcast();
  }

  MicroBatchRange micro_batches() const override {
    return {.first = ranks_.rank() * cut_.micro_batches, .count = cut_.micro_batches};
  }

  StepResult TrainStep(int64_t step, BatchSource& batches) override {
    replica_.Clear(updater_.loss_scale());
    const auto [first, count] = micro_batches();
    for (int64_t i = 0; i + 1 < count; ++i) {
      replica_.ForwardBackward(step, first + i, batches.Next());
    }
    // The last one completes the gradients, and reduces them as it does.
    replica_.ForwardBackward(step, first + count - 1, batches.Next(), reducer_.hooks());
    Work statistics = replica_.SumStatistics(ranks_);
    const double loss = replica_.SumLoss(ranks_);
    reducer_.Finish();
    ThrowIfError(statistics.Wait());
    StepResult result = updater_.Step(step, trained_);
    if (!result.skipped) replica_.UpdateStatistics();
    result.loss = loss;
    return result;
  }

  EvaluationSums Evaluate(const Batch& batch) override { return replica_.Evaluate(batch); }

  std::vector<StateTensor> State() override {
    std::vector<StateTensor> state = replica_.State();
    for (StateTensor& tensor : updater_.State(state)) state.push_back(std::move(tensor));
    for (StateTensor& tensor : state) tensor.is_writer = ranks_.rank() == 0;
    return state;
  }

  void Restored() override {
    replica_.RoundMasters();
    updater_.Restored();
  }

  CostPrediction Predict() const override {
    CostPrediction prediction = replica_.Predict();
    updater_.AddTo(prediction);
    // A ring all-reduce sends 2 (n - 1) / n of its bytes from each rank.
    const double n = ranks_.size(), share = 2 * (n - 1) / n;
    const auto gradients = static_cast<double>(reducer_.bytes());
    prediction.traffic.push_back({Operation::kAllReduce, "gradients", share * gradients});
    prediction.traffic.push_back({Operation::kAllReduce, "loss", share * sizeof(ExactSum)});
    if (replica_.statistics().defined()) {
      prediction.traffic.push_back({Operation::kAllReduce, "statistics",
                                    share * static_cast<double>(replica_.statistics().bytes())});
    }
    return prediction;
  }

 private:
  // Rank 0's initial values are everybody's.
  void Broadcast() {
    std::vector<Work> works;
    for (const StateTensor& tensor : replica_.State()) {
      works.push_back(ranks_.Broadcast(tensor.tensor, 0, "parameters"));
    }
    ThrowIfError(WaitAll(absl::MakeSpan(works)));
    replica_.RoundMasters();
  }

  Communicator& ranks_;
  const CutSettings& cut_;
  Replica replica_;
  GradientReducer reducer_;
  std::vector<TrainedTensor> trained_;
  Updater updater_;
};

}  // namespace

StrategyDefinition DdpStrategy() {
  return {
      .name = "ddp",
      .axes = {MeshAxis::kDp},
      .check = [](const Config& config, const Settings&) { return ReadOptions(config).status(); },
      .make = [](StrategyInputs inputs) -> std::unique_ptr<Strategy> {
        const BucketLimits limits = ReadOptions(inputs.config).value();
        return std::make_unique<Ddp>(std::move(inputs), limits);
      }};
}

}  // namespace lockstep
