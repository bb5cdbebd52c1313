#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/config/config_reader.h"
#include "core/config/cut_settings.h"
#include "core/run/strategy/batch_statistics.h"
#include "core/run/strategy/expert_loads.h"
#include "core/run/strategy/local_model.h"
#include "core/run/strategy/updater.h"
#include "strategies/context_parallel/context_parallel.h"
#include "strategies/data_parallel/data_parallel_option.h"
#include "strategies/engine/preset.h"
#include "strategies/expert_parallel/expert_parallel.h"
#include "strategies/recompute/policy.h"
#include "strategies/stages/plan.h"
#include "strategies/stages/schedule_option.h"
#include "strategies/stages/schedule_runner.h"
#include "strategies/stages/stage_links.h"
#include "strategies/stages/tied_parameters.h"
#include "strategies/tensor_parallel/tensor_parallel.h"

namespace lockstep {
namespace {

// The mechanisms that a run composes. Context, expert and tensor parallelism need no entry: they
// follow from mesh.cp, mesh.ep, mesh.tp and the tables [context_parallel] and [tensor_parallel].
struct EngineOptions {
  Schedule schedule;  // accepted by Validate, for mesh.pp ranks; see ReadSchedule
  BalanceOption balance;
  RecomputePolicy recompute;
  DataParallelMaker make_data_parallel;
  Divided divided = Divided::kNothing;
  ShardAssignment shards = ShardAssignment::kConsecutive;
};

// Reads the tables of all mechanisms, and checks them against the mesh and the cut. InvalidArgument
// with all problems.
absl::StatusOr<EngineOptions> ReadEngineOptions(const Config& config, const Settings& settings) {
  EngineOptions options;
  options.divided = ReadDivided(config);
  options.shards = AssignmentOf(options.divided);
  absl::Status problems = CheckShards(settings.mesh, settings.cut, options.shards);
  ConfigReader pipeline(config.Table("pipeline"));
  options.schedule = ReadSchedule(pipeline, settings, options.divided);
  options.balance = ReadBalance(pipeline);
  problems = Both(problems, pipeline.Finish());
  absl::StatusOr<DataParallelMaker> maker = ReadDataParallel(config, settings, options.schedule);
  problems = Both(problems, maker.status());
  absl::StatusOr<RecomputePolicy> recompute = ReadRecomputePolicy(config);
  problems = Both(problems, recompute.status());
  problems = Both(problems, CheckTensorParallelOptions(config));
  problems = Both(problems, CheckContextParallelOptions(config));
  if (!problems.ok()) return problems;
  options.make_data_parallel = *std::move(maker);
  options.recompute = *std::move(recompute);
  return options;
}

class Engine : public Strategy {
 public:
  Engine(StrategyInputs inputs, EngineOptions options, StagePlan plan)
      : options_(std::move(options)),
        plan_(std::move(plan)),
        settings_(inputs.settings),
        micro_batches_(MicroBatches(inputs.rank.mesh.coordinate())),
        stages_(inputs.rank.mesh.pp()),
        batch_(inputs.rank.mesh.batch()),
        tensor_(inputs),
        context_(inputs),
        experts_(inputs),
        data_parallel_(MakeDataParallel(inputs)),
        links_(local_model(), plan_, stages_),
        tied_(local_model(), plan_, stages_,
              {.values = [this](const Parameter& p) { return data_parallel_->ValuesOf(p); },
               .gradient = [this](const Parameter& p) { return data_parallel_->GradientOf(p); }}),
        statistics_(local_model(), settings_, options_.shards),
        trained_(experts_.Prepare(tensor_.Prepare(data_parallel_->Trained()), options_.divided)),
        updater_(inputs.rank, settings_, trained_, GradientHolders()),
        runner_(local_model(), plan_, options_.schedule, stages_.rank(),
                options_.recompute.micro_batches,
                inputs.packs_documents ? BatchUse::kInAllStages : BatchUse::kAtEnds, links_) {
    tied_.SendValues();
    data_parallel_->ShareValues();
  }

  // Between the first stage and the last nobody needs inputs or targets.
  std::vector<int64_t> micro_batches() const override {
    return runner_.takes_batches() ? micro_batches_ : std::vector<int64_t>();
  }

  StepResult TrainStep(int64_t step, BatchSource& batches) override {
    data_parallel_->BeginStep(updater_.loss_scale());
    const int64_t of_shard = settings_.cut.micro_batches;
    const auto at_once = static_cast<size_t>(options_.schedule.micro_batches);
    for (size_t first = 0; first < micro_batches_.size(); first += at_once) {
      const int64_t shards_before = static_cast<int64_t>(first) / of_shard;
      runner_.Run(step, absl::MakeSpan(micro_batches_).subspan(first, at_once), of_shard, batches,
                  {.forwarded =
                       [this](int stage, int64_t micro_batch) {
                         statistics_.EndForward(plan_.stages[stage], micro_batch);
                       },
                   .completing =
                       [&](int stage, int64_t shard) {
                         return data_parallel_->Completing(plan_.stages[stage],
                                                           shards_before + shard);
                       },
                   .completed =
                       [&](int stage, int64_t shard) {
                         data_parallel_->Completed(plan_.stages[stage], shards_before + shard);
                       }});
    }
    batches.FetchAhead();
    statistics_.Share(local_model().rank().mesh);
    data_parallel_->FinishGradients();
    tied_.AddGradients();
    const double loss = ShareLoss(local_model(), batch_, stages_, plan_.last_rank());
    StepResult result = updater_.Step(step, loss, trained_);
    tied_.SendUpdates();
    data_parallel_->ShareUpdates();
    if (!result.skipped) statistics_.Update();
    result.expert_load = ShareExpertLoads(local_model(), stages_);
    return result;
  }

  EvaluationSums Evaluate(const Batch& batch) override { return runner_.Evaluate(batch); }

  const ModelLayout& layout() const override { return data_parallel_->local_model().layout(); }

  std::vector<StateTensor> State() override {
    std::vector<StateTensor> state = data_parallel_->State();
    for (StateTensor& tensor : updater_.State(state)) state.push_back(std::move(tensor));
    return state;
  }

  void Restored() override {
    data_parallel_->RoundMasters();
    tied_.SendValues();
    data_parallel_->ShareValues();
    updater_.Restored();
  }

  CostPrediction Predict() const override {
    const LocalModel& local_model = data_parallel_->local_model();
    const Checkpointing checkpointing = options_.recompute.micro_batches;
    CostPrediction prediction;
    data_parallel_->AddCosts(MeanForwards(options_.schedule.micro_batches, checkpointing),
                             prediction);
    updater_.AddTo(prediction);
    links_.AddTraffic(settings_, tensor_.token_fraction() * context_.token_fraction(), prediction);
    tensor_.AddTraffic(local_model, options_.schedule.micro_batches, checkpointing, prediction);
    context_.AddTraffic(local_model, options_.schedule.micro_batches, checkpointing, prediction);
    experts_.AddTraffic(local_model, options_.schedule.micro_batches, checkpointing, prediction);
    tied_.AddTraffic(prediction);
    AddLossTraffic(local_model, batch_, stages_, plan_.last_rank(), prediction);
    updater_.AddNormTraffic(prediction);
    statistics_.AddCosts(local_model.rank().mesh, prediction);
    AddExpertLoadTraffic(local_model, stages_, prediction);
    prediction.bubble_fraction = BubbleFraction(local_model.model(), plan_, options_.schedule,
                                                checkpointing, stages_.rank());
    return prediction;
  }

  std::string Note() const override { return plan_.note; }

 private:
  LocalModel& local_model() { return data_parallel_->local_model(); }

  // Takes the model of `inputs`.
  std::unique_ptr<DataParallel> MakeDataParallel(StrategyInputs& inputs) {
    // Each part has a name first. Where memory runs out within one expression for all of them, GCC
    // 12 destroys the inner parts that it has not made yet.
    Model model =
        experts_.Divide(context_.Divide(tensor_.Split(std::move(inputs.model)), TokenSums()),
                        TokenSums(), options_.shards);
    ModelLayoutOptions layout;
    layout.mesh = settings_.mesh;
    layout.blocks = plan_.RangesByRank();
    layout.compute = settings_.precision.compute;
    layout.reduce = settings_.precision.reduce;
    std::vector<StageBackward> backwards = Backwards();
    return options_.make_data_parallel({.rank = inputs.rank,
                                        .tensors = std::move(inputs.tensors),
                                        .model = std::move(model),
                                        .layout = std::move(layout),
                                        .halves_backwards = HalvesBackwards(options_.schedule),
                                        .backwards = std::move(backwards),
                                        .settings = settings_,
                                        .targets_per_sample = inputs.targets_per_sample,
                                        .sums_tokens = SumsTokens()});
  }

  bool SumsTokens() const { return lockstep::SumsTokens(settings_, options_.divided); }

  ContextParallel::Sums TokenSums() const {
    return SumsTokens() ? ContextParallel::Sums::kWithShards : ContextParallel::Sums::kHere;
  }

  // What this rank trains of a step.
  std::vector<int64_t> MicroBatches(const MeshCoordinate& at) const {
    std::vector<int64_t> numbers;
    for (const int64_t shard : ShardsOfRank(settings_.mesh, at, settings_.cut, options_.shards)) {
      for (int64_t i = 0; i < settings_.cut.micro_batches; ++i) {
        numbers.push_back(shard * settings_.cut.micro_batches + i);
      }
    }
    return numbers;
  }

  // The backwards of a step, in the order of the schedule.
  std::vector<StageBackward> Backwards() const {
    std::vector<StageBackward> backwards;
    const int64_t runs = settings_.micro_batches_of_rank() / options_.schedule.micro_batches;
    for (int64_t run = 0; run < runs; ++run) {
      for (const Action& action : options_.schedule.ranks[stages_.rank()]) {
        if (action.kind == ActionKind::kForward) continue;
        backwards.push_back(
            {.stage = plan_.stages[action.stage],
             .reaches_inputs = ReachesInputs(action.kind),
             .ends_shard = EndsBackward(action.kind) &&
                           (action.micro_batch + 1) % settings_.cut.micro_batches == 0});
      }
    }
    return backwards;
  }

  std::vector<Communicator*> GradientHolders() const {
    std::vector<Communicator*> holders = {&tensor_.ranks(), &stages_};
    for (Communicator* ranks : experts_.holders(options_.divided)) holders.push_back(ranks);
    for (Communicator* ranks : data_parallel_->holders()) holders.push_back(ranks);
    return holders;
  }

  const EngineOptions options_;
  const StagePlan plan_;
  const Settings& settings_;
  const std::vector<int64_t> micro_batches_;  // of a step, by their numbers in the global batch
  Communicator& stages_;
  Communicator& batch_;  // with the same stages, and other samples or tokens of the batch
  TensorParallel tensor_;
  ContextParallel context_;
  ExpertParallel experts_;
  std::unique_ptr<DataParallel> data_parallel_;
  StageLinks links_;
  TiedParameters tied_;
  BatchStatistics statistics_;
  std::vector<TrainedTensor> trained_;
  Updater updater_;
  ScheduleRunner runner_;
};

}  // namespace

StrategyDefinition EnginePreset(const std::string& name, PresetKeys keys) {
  StrategyDefinition strategy;
  strategy.name = name;
  strategy.keys = std::move(keys);
  strategy.tables = {"pipeline", "data_parallel", kRecomputeTable, kContextParallelTable,
                     kTensorParallelTable};
  strategy.check = [](const Config& config, const Settings& settings) {
    return ReadEngineOptions(config, settings).status();
  };
  strategy.prepare_model = [](const Config& config, Model& model) {
    LS_ASSIGN_OR_RETURN(const RecomputePolicy policy, ReadRecomputePolicy(config));
    return ApplyRecomputePolicy(policy, model);
  };
  strategy.check_model = [](const Config& config, const Settings& settings, const Model& model) {
    LS_RETURN_IF_ERROR(Both(CheckTensorParallelModel(config, settings, model),
                            CheckContextParallelModel(config, settings, model)));
    LS_RETURN_IF_ERROR(CheckExpertParallelModel(settings, model));
    LS_ASSIGN_OR_RETURN(const EngineOptions options, ReadEngineOptions(config, settings));
    return CheckPlan(model, options.schedule, options.balance);
  };
  strategy.needs_profiles = [](const Config& config, const Settings& settings) {
    return NeedsProfiles(ReadEngineOptions(config, settings).value().balance);
  };
  strategy.make = [](StrategyInputs inputs) -> std::unique_ptr<Strategy> {
    EngineOptions options = ReadEngineOptions(inputs.config, inputs.settings).value();
    StagePlan plan = MakePlan(inputs.model, inputs.profiles, options.schedule, options.balance);
    return std::make_unique<Engine>(std::move(inputs), std::move(options), std::move(plan));
  };
  return strategy;
}

}  // namespace lockstep
