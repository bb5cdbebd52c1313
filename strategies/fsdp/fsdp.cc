#include "strategies/fsdp/fsdp.h"

#include <memory>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/run/norm_over_ranks.h"
#include "core/run/replica.h"
#include "core/run/updater.h"
#include "strategies/fsdp/gradient_sums.h"
#include "strategies/fsdp/options.h"
#include "strategies/fsdp/peak_memory.h"
#include "strategies/fsdp/residency.h"
#include "strategies/fsdp/shard_groups.h"
#include "strategies/tp/tensor_parallel.h"

namespace lockstep {
namespace {

// The ranks next to this one that keep units together; null where all do.
std::unique_ptr<Communicator> SplitNeighbours(Communicator& ranks, int neighbours) {
  if (neighbours == ranks.size()) return nullptr;
  auto group = ranks.Split(ranks.rank() / neighbours, ranks.rank(), "neighbours");
  ThrowIfError(group.status());
  return *std::move(group);
}

class Fsdp : public Strategy {
 public:
  Fsdp(StrategyInputs inputs, const FsdpOptions& options)
      : kernels_(inputs.rank.kernels),
        ranks_(inputs.rank.mesh.data()),
        settings_(inputs.settings),
        neighbours_(SplitNeighbours(inputs.rank.mesh.dp(), options.neighbours)),
        groups_{.shards = inputs.rank.mesh.dp(),
                .neighbours = neighbours_ != nullptr ? *neighbours_ : inputs.rank.mesh.dp(),
                .replicas = inputs.rank.mesh.replicas()},
        sums_(settings_.cut.micro_batches),
        tensor_(inputs),
        replica_(
            inputs.rank, tensor_.Split(std::move(inputs.model)), inputs.settings,
            inputs.targets_per_sample,
            [this](Model& model) {
              residency_ = std::make_unique<Residency>(
                  model, std::vector<BlockRange>(1), groups_, settings_.precision, Unshard::kPass,
                  Residency::BackwardHooks{.enter = [this](FsdpUnit& unit) { sums_.Enter(unit); },
                                           .leave = [this](FsdpUnit& unit) { sums_.Leave(unit); }},
                  kernels_, settings_.seed);
            }),
        trained_(tensor_.Prepare(Trained())),
        // Replicas hold the same gradients by then.
        norm_(NormOverRanks({&tensor_.ranks(), &groups_.shards})),
        updater_(inputs.rank, inputs.settings, trained_) {}

  MicroBatchRange micro_batches() const override {
    return {.first = ranks_.rank() * settings_.cut.micro_batches,
            .count = settings_.cut.micro_batches};
  }

  StepResult TrainStep(int64_t step, BatchSource& batches) override {
    replica_.Clear(updater_.loss_scale());
    const auto [first, count] = micro_batches();
    for (int64_t i = 0; i < count; ++i) {
      sums_.Begin(i);
      replica_.ForwardBackward(step, first + i, batches.Next());
    }
    Work statistics = replica_.SumStatistics(ranks_);
    const double loss = replica_.SumLoss(ranks_);
    sums_.Await();
    tensor_.SumGradients();
    ThrowIfError(statistics.Wait());
    StepResult result = updater_.Step(step, trained_, norm_);
    if (!result.skipped) replica_.UpdateStatistics();
    result.loss = loss;
    return result;
  }

  EvaluationSums Evaluate(const Batch& batch) override { return replica_.Evaluate(batch); }

  std::vector<StateTensor> State() override {
    std::vector<StateTensor> parameters, frozen;
    for (const auto& unit : residency_->units()) {
      std::vector<StateTensor>& of_kind = unit->is_trained() ? parameters : frozen;
      of_kind.insert(of_kind.end(), unit->state().begin(), unit->state().end());
    }
    std::vector<StateTensor> state = parameters;
    for (StateTensor& tensor : frozen) state.push_back(std::move(tensor));
    for (StateTensor& tensor : replica_.StatisticsState()) {
      tensor.is_writer = ranks_.rank() == 0;
      state.push_back(std::move(tensor));
    }
    for (StateTensor& tensor : updater_.State(parameters)) state.push_back(std::move(tensor));
    tensor_.ChooseWriters(state);
    return state;
  }

  void Restored() override {
    for (const auto& unit : residency_->units()) unit->parameters().RoundMaster();
    updater_.Restored();
  }

  CostPrediction Predict() const override {
    // Fraction of the payload that each rank sends in a ring.
    const auto share = [](const Communicator& group) {
      const double n = group.size();
      return (n - 1) / n;
    };
    const auto micro_batches = static_cast<double>(settings_.cut.micro_batches);
    const std::vector<UnitNeeds> needs = residency_->Needs(replica_.ranges()[0]);
    int64_t shard = 0, trained = 0;  // elements, with what fills them up
    for (const auto& unit : residency_->units()) {
      shard += unit->parameters().shard().elements();
      if (unit->is_trained()) trained += unit->parameters().shard().elements();
    }
    int64_t forward = 0, backward = 0;  // bytes that are whole in each
    for (const UnitNeeds& need : needs) {
      forward += need.whole;
      if (need.in_backward) backward += need.whole;
    }
    const Precision& precision = settings_.precision;
    const int64_t parameters = shard * SizeOf(precision.compute);
    const int64_t gradients = trained * SizeOf(precision.reduce);
    const int64_t optimizer =
        settings_.optimizer.state_bytes_per_parameter() + (precision.has_masters() ? 4 : 0);
    const double whole = groups_.shards.size();  // in shards
    // A unit is gathered from all shards for its forward, from the neighbours for its backward.
    const double gathered = static_cast<double>(forward) * share(groups_.shards) +
                            static_cast<double>(backward) * share(groups_.neighbours);
    const double reduced = whole * static_cast<double>(gradients) * share(groups_.shards);
    CostPrediction prediction;
    prediction.traffic = {{Operation::kAllGather, "parameters", micro_batches * gathered},
                          {Operation::kReduceScatter, "gradients", reduced},
                          {Operation::kAllReduce, "loss", 2 * share(ranks_) * sizeof(ExactSum)}};
    tensor_.AddTraffic(replica_, 1, prediction);
    AddNormTraffic({&tensor_.ranks(), &groups_.shards}, prediction);
    if (groups_.replicas.size() > 1) {
      prediction.traffic.push_back({Operation::kAllReduce, "gradients",
                                    2 * share(groups_.replicas) * static_cast<double>(gradients)});
    }
    if (replica_.statistics().defined()) {
      prediction.traffic.push_back(
          {Operation::kAllReduce, "statistics",
           2 * share(ranks_) * static_cast<double>(replica_.statistics().bytes())});
    }
    prediction.memory = {{MemoryClass::kParameters,
                          parameters + PeakParameterBytes(needs) + replica_.statistics_bytes()},
                         {MemoryClass::kGradients, gradients + sums_.PeakBytes(needs)},
                         {MemoryClass::kOptimizerState, trained * optimizer}};
    updater_.AddTo(prediction);
    return prediction;
  }

 private:
  std::vector<TrainedTensor> Trained() const {
    std::vector<TrainedTensor> trained;
    for (const auto& unit : residency_->units()) {
      trained.insert(trained.end(), unit->trained().begin(), unit->trained().end());
    }
    return trained;
  }

  Kernels& kernels_;
  Communicator& ranks_;  // all that share the batch
  const Settings& settings_;
  std::unique_ptr<Communicator> neighbours_;  // null: all that hold shards
  ShardGroups groups_;
  GradientSums sums_;
  TensorParallel tensor_;
  std::unique_ptr<Residency> residency_;  // hangs on the replica's blocks
  Replica replica_;
  std::vector<TrainedTensor> trained_;
  NormReduction norm_;
  Updater updater_;
};

}  // namespace

StrategyDefinition FsdpStrategy() {
  return {.name = "fsdp",
          .axes = {MeshAxis::kReplicas, MeshAxis::kDp, MeshAxis::kTp},
          .more_tables = {kTensorParallelTable},
          .check =
              [](const Config& config, const Settings& settings) {
                LS_RETURN_IF_ERROR(CheckTensorParallelOptions(config));
                return ReadFsdpOptions(config, settings).status();
              },
          .check_model = CheckTensorParallelModel,
          .make = [](StrategyInputs inputs) -> std::unique_ptr<Strategy> {
            const FsdpOptions options = ReadFsdpOptions(inputs.config, inputs.settings).value();
            return std::make_unique<Fsdp>(std::move(inputs), options);
          }};
}

}  // namespace lockstep
