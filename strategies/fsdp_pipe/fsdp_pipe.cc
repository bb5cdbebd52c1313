#include "strategies/fsdp_pipe/fsdp_pipe.h"

#include <memory>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/train/config_reader.h"
#include "core/train/norm_over_ranks.h"
#include "core/train/updater.h"
#include "strategies/fsdp_pipe/sharded_part.h"
#include "strategies/pipeline/bubble.h"
#include "strategies/pipeline/options.h"
#include "strategies/pipeline/plan.h"
#include "strategies/pipeline/schedule_runner.h"
#include "strategies/stages/balance_option.h"
#include "strategies/stages/stage_links.h"
#include "strategies/stages/stage_loss.h"
#include "strategies/stages/tied_parameters.h"
#include "strategies/tp/tensor_parallel.h"

namespace lockstep {
namespace {

constexpr char kName[] = "fsdp_pipe";

struct Options {
  Schedule schedule;
  Checkpointing checkpointing;
  BalanceOption balance;
  Unshard unshard = Unshard::kStep;
};

absl::StatusOr<Options> ReadOptions(const Config& config, const Settings& settings) {
  ConfigReader reader(config.Table(kName));
  Options options = {.schedule = ReadSchedule(reader, settings),
                     .checkpointing = ReadCheckpointing(reader),
                     .balance = ReadBalance(reader)};
  reader.ReadChoice("unshard", &options.unshard,
                    {{"step", Unshard::kStep}, {"micro_batch", Unshard::kPass}});
  LS_RETURN_IF_ERROR(reader.Finish());
  LS_RETURN_IF_ERROR(CheckTensorParallelOptions(config));
  return options;
}

class FsdpPipe : public Strategy {
 public:
  FsdpPipe(StrategyInputs inputs, Options options, StagePlan plan)
      : options_(std::move(options)),
        plan_(std::move(plan)),
        settings_(inputs.settings),
        stages_(inputs.rank.mesh.pp()),
        shards_(inputs.rank.mesh.dp()),
        tensor_(inputs),
        part_(inputs.rank, tensor_.Split(std::move(inputs.model)), plan_.RangesOf(stages_.rank()),
              shards_, options_.unshard, settings_, inputs.targets_per_sample),
        links_(stage(), plan_, stages_),
        tied_(stage(), plan_, stages_,
              [this](const Parameter& parameter) { return part_.ShardOf(parameter); }),
        trained_(tensor_.Prepare(part_.Trained())),
        norm_(NormOverRanks({&tensor_.ranks(), &stages_, &shards_})),
        updater_(inputs.rank, settings_, trained_),
        runner_(stage(), plan_, options_.schedule, stages_.rank(), options_.checkpointing, links_) {
    tied_.SendValues();  // of which guests have none of their own
  }

  MicroBatchRange micro_batches() const override {
    return {.first = first_micro_batch(),
            .count = runner_.takes_batches() ? settings_.batch.micro_batches : 0};
  }

  StepResult TrainStep(int64_t step, BatchSource& batches) override {
    part_.BeginStep(updater_.loss_scale());
    tied_.BeginStep();
    const auto await = [this](const Parameter& parameter) { tied_.AwaitGradients(parameter); };
    runner_.Run(step, first_micro_batch(), batches,
                {.completed = [&](int stage) { part_.Complete(plan_.stages[stage], await); }});
    tied_.SendGradients();
    Work statistics = stage().SumStatistics(shards_);
    part_.EndStep();
    tensor_.SumGradients();
    ThrowIfError(statistics.Wait());
    const double loss = ShareLoss(stage(), shards_, stages_, plan_.last_rank());
    tied_.AwaitSent();
    StepResult result = updater_.Step(step, trained_, norm_);
    tied_.SendValues();
    if (!result.skipped) stage().UpdateStatistics();
    result.loss = loss;
    return result;
  }

  EvaluationSums Evaluate(const Batch& batch) override { return runner_.Evaluate(batch); }

  std::vector<StateTensor> State() override {
    const std::vector<StateTensor> parameters = part_.State();
    std::vector<StateTensor> state = parameters;
    for (StateTensor& tensor : stage().StatisticsState()) {
      tensor.is_writer &= shards_.rank() == 0;
      state.push_back(std::move(tensor));
    }
    for (StateTensor& tensor : updater_.State(parameters)) state.push_back(std::move(tensor));
    tensor_.ChooseWriters(state);
    return state;
  }

  void Restored() override {
    part_.RoundMasters();
    tied_.SendValues();
    updater_.Restored();
  }

  CostPrediction Predict() const override {
    const double forwards = MeanForwards(options_.schedule.micro_batches, options_.checkpointing);
    CostPrediction prediction;
    part_.Predict(forwards, prediction);
    updater_.AddTo(prediction);
    links_.AddTraffic(settings_, tensor_.token_share(), prediction);
    tensor_.AddTraffic(part_.stage(), forwards, prediction);
    tied_.AddTraffic(prediction);
    AddLossTraffic(part_.stage(), shards_, stages_, plan_.last_rank(), prediction);
    AddNormTraffic({&tensor_.ranks(), &stages_, &shards_}, prediction);
    if (const Tensor& statistics = part_.stage().statistics(); statistics.defined()) {
      const double n = shards_.size();
      prediction.AddTraffic(Operation::kAllReduce, "statistics",
                            2 * (n - 1) / n * static_cast<double>(statistics.bytes()));
    }
    prediction.bubble_fraction = BubbleFraction(part_.stage().model(), plan_, options_.schedule,
                                                options_.checkpointing, stages_.rank());
    return prediction;
  }

 private:
  Stage& stage() { return part_.stage(); }
  int64_t first_micro_batch() const { return shards_.rank() * settings_.batch.micro_batches; }

  const Options options_;
  const StagePlan plan_;
  const Settings& settings_;
  Communicator& stages_;
  Communicator& shards_;
  TensorParallel tensor_;
  ShardedPart part_;
  StageLinks links_;
  TiedParameters tied_;
  std::vector<TrainedTensor> trained_;
  NormReduction norm_;
  Updater updater_;
  ScheduleRunner runner_;
};

}  // namespace

StrategyDefinition FsdpPipeStrategy() {
  return {.name = kName,
          .axes = {MeshAxis::kPp, MeshAxis::kDp, MeshAxis::kTp},
          .more_tables = {kTensorParallelTable},
          .check = [](const Config& config,
                      const Settings& settings) { return ReadOptions(config, settings).status(); },
          .check_model =
              [](const Config& config, const Settings& settings, const Model& model) {
                LS_RETURN_IF_ERROR(CheckTensorParallelModel(config, settings, model));
                LS_ASSIGN_OR_RETURN(const Options options, ReadOptions(config, settings));
                return CheckPlan(model, options.schedule, options.balance, kName);
              },
          .make = [](StrategyInputs inputs) -> std::unique_ptr<Strategy> {
            Options options = ReadOptions(inputs.config, inputs.settings).value();
            StagePlan plan = MakePlan(inputs, options.schedule, options.balance, kName);
            return std::make_unique<FsdpPipe>(std::move(inputs), std::move(options),
                                              std::move(plan));
          }};
}

}  // namespace lockstep
