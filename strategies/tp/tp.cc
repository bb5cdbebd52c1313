#include "strategies/tp/tp.h"

#include <memory>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/run/norm_over_ranks.h"
#include "core/run/replica.h"
#include "core/run/updater.h"
#include "strategies/ddp/gradient_reducer.h"
#include "strategies/tp/tensor_parallel.h"

namespace lockstep {
namespace {

class Tp : public Strategy {
 public:
  explicit Tp(StrategyInputs inputs)
      : shards_(inputs.rank.mesh.dp()),
        settings_(inputs.settings),
        tensor_(inputs),
        replica_(inputs.rank, tensor_.Split(std::move(inputs.model)), settings_,
                 inputs.targets_per_sample),
        reducer_(replica_, shards_, settings_.precision.reduce, BucketLimits{},
                 [this](Parameter& parameter) { replica_.CompleteGradient(parameter); }),
        trained_(tensor_.Prepare(replica_.Trained())),
        norm_(NormOverRanks({&tensor_.ranks()})),
        updater_(inputs.rank, settings_, trained_) {}

  MicroBatchRange micro_batches() const override {
    return {.first = shards_.rank() * settings_.cut.micro_batches,
            .count = settings_.cut.micro_batches};
  }

  StepResult TrainStep(int64_t step, BatchSource& batches) override {
    replica_.Clear(updater_.loss_scale());
    const auto [first, count] = micro_batches();
    for (int64_t i = 0; i + 1 < count; ++i) {
      replica_.ForwardBackward(step, first + i, batches.Next());
    }
    // The last one completes the gradients, and reduces them as it does.
    replica_.ForwardBackward(step, first + count - 1, batches.Next(), reducer_.hooks());
    Work statistics = replica_.SumStatistics(shards_);
    const double loss = replica_.SumLoss(shards_);
    reducer_.Finish();
    tensor_.SumGradients();
    ThrowIfError(statistics.Wait());
    StepResult result = updater_.Step(step, trained_, norm_);
    if (!result.skipped) replica_.UpdateStatistics();
    result.loss = loss;
    return result;
  }

  EvaluationSums Evaluate(const Batch& batch) override { return replica_.Evaluate(batch); }

  std::vector<StateTensor> State() override {
    std::vector<StateTensor> state = replica_.State();
    for (StateTensor& tensor : updater_.State(state)) state.push_back(std::move(tensor));
    for (StateTensor& tensor : state) tensor.is_writer &= shards_.rank() == 0;
    tensor_.ChooseWriters(state);
    return state;
  }

  void Restored() override {
    replica_.RoundMasters();
    updater_.Restored();
  }

  CostPrediction Predict() const override {
    CostPrediction prediction = replica_.Predict();
    updater_.AddTo(prediction);
    tensor_.AddTraffic(replica_, 1, prediction);
    AddNormTraffic({&tensor_.ranks()}, prediction);
    // A ring all-reduce sends 2 (n - 1) / n of its bytes from each rank.
    const double n = shards_.size(), share = 2 * (n - 1) / n;
    const auto add = [&](const char* label, double bytes) {
      prediction.AddTraffic(Operation::kAllReduce, label, share * bytes);
    };
    add("gradients", static_cast<double>(reducer_.bytes()));
    add("loss", sizeof(ExactSum));
    if (replica_.statistics().defined()) {
      add("statistics", static_cast<double>(replica_.statistics().bytes()));
    }
    return prediction;
  }

 private:
  Communicator& shards_;  // with the same slices, and other micro-batches
  const Settings& settings_;
  TensorParallel tensor_;
  Replica replica_;
  GradientReducer reducer_;
  std::vector<TrainedTensor> trained_;
  NormReduction norm_;
  Updater updater_;
};

}  // namespace

StrategyDefinition TpStrategy() {
  return {.name = "tp",
          .axes = {MeshAxis::kDp, MeshAxis::kTp},
          .check = [](const Config& config,
                      const Settings&) { return CheckTensorParallelOptions(config); },
          .check_model = CheckTensorParallelModel,
          .make = [](StrategyInputs inputs) -> std::unique_ptr<Strategy> {
            return std::make_unique<Tp>(std::move(inputs));
          }};
}

}  // namespace lockstep
