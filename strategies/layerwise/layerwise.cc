#include "strategies/layerwise/layerwise.h"

#include <memory>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/train/config_reader.h"
#include "core/train/norm_over_ranks.h"
#include "core/train/stage.h"
#include "core/train/stage_pass.h"
#include "core/train/updater.h"
#include "strategies/ddp/gradient_reducer.h"
#include "strategies/stages/balance.h"
#include "strategies/stages/balance_option.h"
#include "strategies/stages/stage_links.h"
#include "strategies/stages/stage_loss.h"
#include "strategies/stages/tied_parameters.h"

namespace lockstep {
namespace {

struct Options {
  BalanceOption balance;
  BucketLimits buckets;
};

absl::StatusOr<Options> ReadOptions(const Config& config) {
  Options options;
  ConfigReader reader(config.Table("layerwise"));
  options.balance = ReadBalance(reader);
  options.buckets = ReadBucketLimits(reader);
  LS_RETURN_IF_ERROR(reader.Finish());
  return options;
}

absl::StatusOr<std::vector<BlockRange>> Divide(const Model& model,
                                               const std::vector<int64_t>& balance,
                                               const Settings& settings) {
  return DivideBlocks(model, balance, settings.mesh.pp, "layerwise.balance");
}

class Layerwise : public Strategy {
 public:
  Layerwise(StrategyInputs inputs, const Options& options, const std::vector<BlockRange>& ranges)
      : settings_(inputs.settings),
        stages_(inputs.rank.mesh.pp()),
        shards_(inputs.rank.mesh.dp()),
        stage_(inputs.rank, std::move(inputs.model), ranges[stages_.rank()], settings_,
               inputs.targets_per_sample),
        links_(stage_, stages_),
        tied_(stage_, ranges, stages_),
        reducer_(stage_, shards_, settings_.precision.reduce, options.buckets,
                 [this](Parameter& parameter) {
                   tied_.AwaitGradients(parameter);
                   stage_.CompleteGradient(parameter);
                 }),
        trained_(stage_.Trained()),
        norm_(NormOverRanks(stages_, inputs.rank.kernels)),
        updater_(inputs.rank, settings_, trained_) {}

  // Between the first stage and the last nobody needs inputs or targets.
  MicroBatchRange micro_batches() const override {
    return {.first = first_micro_batch(),
            .count = takes_batches() ? settings_.batch.micro_batches : 0};
  }

  StepResult TrainStep(int64_t step, BatchSource& batches) override {
    stage_.Clear(updater_.loss_scale());
    tied_.BeginStep();
    for (int64_t i = 0; i < settings_.batch.micro_batches; ++i) {
      const Batch batch = takes_batches() ? batches.Next() : Batch();
      // The last one completes the gradients, and reduces them as it does.
      const bool completes = i + 1 == settings_.batch.micro_batches;
      TakeTurn(step, first_micro_batch() + i, batch,
               completes ? reducer_.hooks() : BackwardHooks());
    }
    tied_.SendGradients();
    Work statistics = stage_.SumStatistics(shards_);
    reducer_.Finish();
    ThrowIfError(statistics.Wait());
    links_.AwaitSent();
    const double loss = ShareLoss(stage_, shards_, stages_);
    tied_.AwaitSent();
    StepResult result = updater_.Step(step, trained_, norm_);
    tied_.SendValues();
    if (!result.skipped) stage_.UpdateStatistics();
    result.loss = loss;
    return result;
  }

  EvaluationSums Evaluate(const Batch& batch) override {
    const BatchKind kind = {.mode = Pass::Mode::kEvaluate, .samples = batch.inputs.shape()[0]};
    EvaluationPass pass(stage_);
    const Variables outputs = pass.Forward(stage_.is_first() ? stage_.Enter(batch.inputs)
                                                             : links_.ReceiveActivations(kind));
    if (stage_.is_last()) return pass.Score(outputs[0], batch.targets);
    links_.SendActivations(kind, outputs);
    links_.AwaitSent();
    return {};
  }

  std::vector<StateTensor> State() override {
    std::vector<StateTensor> state = stage_.State();
    for (StateTensor& tensor : updater_.State(state)) state.push_back(std::move(tensor));
    for (StateTensor& tensor : state) tensor.is_writer &= shards_.rank() == 0;
    return state;
  }

  void Restored() override {
    stage_.RoundMasters();
    tied_.SendValues();
    updater_.Restored();
  }

  CostPrediction Predict() const override {
    CostPrediction prediction = stage_.Predict();
    updater_.AddTo(prediction);
    AddLinkTraffic(stage_, settings_, prediction);
    tied_.AddTraffic(prediction);
    AddLossTraffic(stage_, shards_, stages_, prediction);
    // A ring all-reduce sends 2 (n - 1) / n of its bytes from each rank.
    const auto add = [&prediction](const Communicator& ranks, const char* label, double bytes) {
      const double n = ranks.size();
      prediction.traffic.push_back({Operation::kAllReduce, label, 2 * (n - 1) / n * bytes});
    };
    add(shards_, "gradients", static_cast<double>(reducer_.bytes()));
    add(stages_, "norm", kNormBytes);
    if (stage_.statistics().defined()) {
      add(shards_, "statistics", static_cast<double>(stage_.statistics().bytes()));
    }
    prediction.bubble_fraction = IdleShareOfTurns(stage_.model(), stage_.blocks());
    return prediction;
  }

 private:
  int64_t first_micro_batch() const { return shards_.rank() * settings_.batch.micro_batches; }
  bool takes_batches() const { return stage_.is_first() || stage_.is_last(); }

  // This stage's part in a micro-batch, forward and back.
  void TakeTurn(int64_t step, int64_t micro_batch, const Batch& batch, const BackwardHooks& hooks) {
    const BatchKind kind = {.samples = settings_.batch.samples_of(micro_batch)};
    StagePass pass(stage_, step, micro_batch);
    const Variables outputs = pass.Forward(
        stage_.is_first() ? stage_.Enter(batch.inputs) : links_.ReceiveActivations(kind),
        batch.targets);
    std::vector<Tensor> gradients;
    if (!stage_.is_last()) {
      links_.SendActivations(kind, outputs);
      gradients = links_.ReceiveGradients(kind);
    }
    links_.AwaitSent();  // taken long ago
    const std::vector<Tensor> of_inputs = pass.Backward(std::move(gradients), hooks);
    if (!stage_.is_first()) links_.SendGradients(kind, of_inputs);
  }

  const Settings& settings_;
  Communicator& stages_;
  Communicator& shards_;
  Stage stage_;
  StageLinks links_;
  TiedParameters tied_;
  GradientReducer reducer_;
  std::vector<TrainedTensor> trained_;
  NormReduction norm_;
  Updater updater_;
};

}  // namespace

StrategyDefinition LayerwiseStrategy() {
  return {
      .name = "layerwise",
      .axes = {MeshAxis::kPp, MeshAxis::kDp},
      .check = [](const Config& config, const Settings&) { return ReadOptions(config).status(); },
      .check_model =
          [](const Config& config, const Settings& settings, const Model& model) {
            return Divide(model, ReadOptions(config).value().balance.given, settings).status();
          },
      .make = [](StrategyInputs inputs) -> std::unique_ptr<Strategy> {
        const Options options = ReadOptions(inputs.config).value();
        const std::vector<BlockRange> ranges =
            Divide(inputs.model, FindBalance(inputs, options.balance, inputs.settings.mesh.pp),
                   inputs.settings)
                .value();
        return std::make_unique<Layerwise>(std::move(inputs), options, ranges);
      }};
}

}  // namespace lockstep
