#include "strategies/fsdp/fsdp.h"

#include <memory>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/train/config_reader.h"
#include "core/train/replica.h"
#include "core/train/updater.h"
#include "strategies/fsdp/residency.h"

namespace lockstep {
namespace {

struct Options {
  bool reshard_after_forward = true;
};

absl::StatusOr<Options> ReadOptions(const Config& config) {
  Options options;
  ConfigReader reader(config.Table("fsdp"));
  reader.Read("reshard_after_forward", &options.reshard_after_forward);
  LS_RETURN_IF_ERROR(reader.Finish());
  return options;
}

class Fsdp : public Strategy {
 public:
  Fsdp(StrategyInputs inputs, const Options& options)
      : kernels_(inputs.rank.kernels),
        ranks_(inputs.rank.mesh.dp()),
        settings_(inputs.settings),
        reshard_(options.reshard_after_forward ? ReshardAfterForward::kYes
                                               : ReshardAfterForward::kNo),
        replica_(inputs.rank, std::move(inputs.model), inputs.settings, inputs.targets_per_sample,
                 [this](Model& model) {
                   residency_ = std::make_unique<Residency>(model, ranks_, kernels_, settings_.seed,
                                                            reshard_);
                 }),
        trained_(Trained()),
        updater_(inputs.rank, inputs.settings, trained_) {
    residency_->OnComplete([this](FsdpUnit& unit) {
      for (Parameter* parameter : unit.parameters()) replica_.CompleteGradient(*parameter);
    });
  }

  MicroBatchRange micro_batches() const override {
    return {.first = ranks_.rank() * settings_.batch.micro_batches,
            .count = settings_.batch.micro_batches};
  }

  StepResult TrainStep(int64_t step, BatchSource& batches) override {
    replica_.Clear(updater_.loss_scale());
    const auto [first, count] = micro_batches();
    for (int64_t i = 0; i < count; ++i) {
      residency_->Begin(i + 1 < count ? Residency::MicroBatch::kAccumulates
                                      : Residency::MicroBatch::kCompletes);
      replica_.ForwardBackward(step, first + i, batches.Next());
    }
    Work statistics = replica_.SumStatistics(ranks_);
    const double loss = replica_.SumLoss(ranks_);
    residency_->AwaitReduced();
    ThrowIfError(statistics.Wait());
    replica_.UpdateStatistics();
    StepResult result = updater_.Step(step, trained_, NormOverRanks());
    result.loss = loss;
    return result;
  }

  EvaluationSums Evaluate(const Batch& batch) override {
    const EvaluationSums sums = replica_.Evaluate(batch);
    residency_->ReleaseAll();
    return sums;
  }

  std::vector<StateTensor> State() override {
    std::vector<StateTensor> parameters;
    for (const auto& unit : residency_->units()) {
      parameters.insert(parameters.end(), unit->state().begin(), unit->state().end());
    }
    std::vector<StateTensor> state = parameters;
    for (StateTensor& tensor : replica_.StatisticsState()) {
      tensor.is_writer = ranks_.rank() == 0;
      state.push_back(std::move(tensor));
    }
    for (StateTensor& tensor : updater_.State(parameters)) state.push_back(std::move(tensor));
    return state;
  }

  void Restored() override { updater_.Restored(); }

  CostPrediction Predict() const override {
    const double n = ranks_.size();
    const int64_t micro_batches = settings_.batch.micro_batches;
    int64_t shards = 0, whole = 0;
    for (const auto& unit : residency_->units()) {
      shards += unit->shard_bytes();
      whole += unit->whole_bytes();
    }
    const double sent = static_cast<double>(whole) * (n - 1) / n;
    const double gathers =
        static_cast<double>(micro_batches * (reshard_ == ReshardAfterForward::kYes ? 2 : 1));
    CostPrediction prediction;
    prediction.traffic = {{Operation::kAllGather, "parameters", gathers * sent},
                          {Operation::kReduceScatter, "gradients", sent},
                          {Operation::kAllReduce, "loss", 2 * (n - 1) / n * sizeof(double)},
                          {Operation::kAllReduce, "norm", 2 * (n - 1) / n * kNormBytes}};
    if (replica_.statistics().defined()) {
      prediction.traffic.push_back(
          {Operation::kAllReduce, "statistics",
           2 * (n - 1) / n * static_cast<double>(replica_.statistics().bytes())});
    }
    prediction.memory = {
        {MemoryClass::kParameters,
         shards + residency_->peak_whole_bytes() + replica_.statistics_bytes()},
        {MemoryClass::kGradients, shards + residency_->peak_gradient_bytes(micro_batches)},
        {MemoryClass::kOptimizerState,
         shards / 4 * settings_.optimizer.state_bytes_per_parameter()}};
    return prediction;
  }

 private:
  // The largest magnitude, and three bins of a sum of squares.
  static constexpr double kNormBytes = sizeof(float) + 3 * sizeof(double);

  std::vector<TrainedTensor> Trained() const {
    std::vector<TrainedTensor> trained;
    for (const auto& unit : residency_->units()) {
      trained.insert(trained.end(), unit->trained().begin(), unit->trained().end());
    }
    return trained;
  }

  template <typename T>
  std::vector<T> Reduce(const std::vector<T>& values, DType dtype, ReduceOp op) {
    const auto count = static_cast<int64_t>(values.size());
    const Tensor sum = kernels_.Empty({count}, dtype, MemoryClass::kCommunication);
    kernels_.CopyFromHost(values.data(), sum);
    ThrowIfError(ranks_.AllReduce(sum, sum, op, "norm").Wait());
    std::vector<T> reduced(values.size());
    kernels_.CopyToHost(sum, reduced.data());
    return reduced;
  }

  NormReduction NormOverRanks() {
    return {
        .max =
            [this](float local) { return Reduce<float>({local}, DType::kF32, ReduceOp::kMax)[0]; },
        .sum =
            [this](SquareSum local) {
              const std::vector<double> bins = Reduce<double>(
                  {local.bins[0], local.bins[1], local.bins[2]}, DType::kF64, ReduceOp::kSum);
              return SquareSum{{bins[0], bins[1], bins[2]}};
            }};
  }

  Kernels& kernels_;
  Communicator& ranks_;
  const Settings& settings_;
  const ReshardAfterForward reshard_;
  std::unique_ptr<Residency> residency_;  // hangs on the replica's blocks
  Replica replica_;
  std::vector<TrainedTensor> trained_;
  Updater updater_;
};

}  // namespace

StrategyDefinition FsdpStrategy() {
  return {.name = "fsdp",
          .axes = {MeshAxis::kDp},
          .check = [](const Config& config) { return ReadOptions(config).status(); },
          .make = [](StrategyInputs inputs) -> std::unique_ptr<Strategy> {
            const Options options = ReadOptions(inputs.config).value();
            return std::make_unique<Fsdp>(std::move(inputs), options);
          }};
}

}  // namespace lockstep
