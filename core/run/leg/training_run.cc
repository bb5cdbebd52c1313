#include "core/run/leg/training_run.h"

#include <sys/resource.h>  // getrlimit
#include <unistd.h>        // sysconf

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/checked_product.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/base/token_order.h"
#include "core/base/user_path.h"
#include "core/checkpoint/weights.h"
#include "core/config/config_reader.h"
#include "core/config/data_config.h"
#include "core/config/in_memory_settings.h"
#include "core/config/key_ranges.h"
#include "core/config/preset_keys.h"
#include "core/nn/lora.h"
#include "core/report/error_file.h"
#include "core/run/directory/model_fingerprint.h"
#include "core/run/leg/epochs.h"
#include "core/run/leg/resolved_config.h"
#include "core/run/record/run_probe.h"
#include "core/run/strategy/model_weights.h"
#include "core/tensor/allocator.h"

namespace lockstep {
namespace {

// More threads than this help nobody; a typing error should not start them.
constexpr int kMostRanksHere = 256;

// Bytes of a workload's name: a name of a file may have 255, and a number may follow.
constexpr size_t kLongestName = 200;

// Lays `layer` over `config`. The layer says how long the run is: its train.epochs take the place
// of earlier train.steps, and the other way round.
void LayOver(const Config& layer, Config& config) {
  const bool has_steps = layer.Table("train.steps").value != nullptr;
  if (has_steps != CountsEpochs(layer)) {
    config = config.Without(has_steps ? "train.epochs" : "train.steps");
  }
  config.Merge(layer);
}

// All configuration files and assignments, laid over each other.
absl::StatusOr<Config> LoadConfig(const CommandLine& command_line) {
  if (command_line.configs.empty()) {
    return absl::InvalidArgumentError(
        "no configuration: give --config FILE, e.g. an experiment's workload.toml");
  }
  Config config;
  for (const std::string& path : command_line.configs) {
    LS_ASSIGN_OR_RETURN(const Config layer, Config::FromFile(path));
    LayOver(layer, config);
  }
  for (const std::string& assignment : command_line.assignments) {
    Config layer;
    LS_RETURN_IF_ERROR(layer.Set(assignment));
    LayOver(layer, config);
  }
  return config;
}

// The tables that runs of a strategy know.
std::vector<std::string> TablesOf(const StrategyDefinition& strategy) {
  std::vector<std::string> tables = SettingsTables();
  tables.insert(tables.end(), {"model", "data"});
  tables.insert(tables.end(), strategy.tables.begin(), strategy.tables.end());
  return tables;
}

// Reads the workload's name, and refuses tables that nobody knows.
absl::StatusOr<std::string> CheckTables(const Config& config, const StrategyDefinition& strategy) {
  ConfigReader reader(config.Table(""));
  std::string name = "run";
  reader.Read("name", &name);
  // The name becomes that of a folder below runs/, and of nothing else.
  if (name.empty() || name == "." || name == ".." || name.size() > kLongestName ||
      name.find_first_of(std::string_view("/\0", 2)) != std::string::npos) {
    reader.AddProblem("name", absl::StrCat("is no name of a folder: it must have 1 to ",
                                           kLongestName, " bytes and no slash"));
  }
  for (const std::string& table : TablesOf(strategy)) reader.Table(table);
  LS_RETURN_IF_ERROR(reader.Finish());
  return name;
}

// Before any rank starts: all would say the same.
absl::Status CheckInitialWeights(const Model& model) {
  CpuAllocator allocator;
  return Annotate(CheckWeights(model.initial_weights, model.published,
                               InitialState(WeightsOf(model, allocator))),
                  "model.init");
}

// Adds adapters, cuts sums over features, and adds what the strategy has to say of blocks.
ModelFactory Prepared(const ModelFactory& make_model, const StrategyDefinition& strategy,
                      const std::optional<LoraOptions>& lora, int64_t features) {
  return [make_model, prepare = strategy.prepare_model, lora, features](
             const Config& config, const Dataset& dataset) -> absl::StatusOr<Model> {
    LS_ASSIGN_OR_RETURN(Model model, make_model(config, dataset));
    if (lora) LS_RETURN_IF_ERROR(Annotate(AddAdapters(model, *lora), "lora.layers"));
    model.CutFeatures(static_cast<int>(features));
    LS_RETURN_IF_ERROR(prepare(config, model));
    return model;
  };
}

absl::Status CheckFeatures(const Model& model, int64_t features) {
  const absl::Status divides = model.CheckSplit(static_cast<int>(features), "feature leaves");
  if (divides.ok()) return divides;
  return InvalidArgument("cut.features is ", features, ", but ", divides.message(),
                         "; change cut.features, or the sizes of [model]");
}

absl::Status CheckTokens(const Model& model, const Dataset& dataset, int64_t leaves) {
  if (leaves == 1) return absl::OkStatus();
  if (!model.splits_sequence) {
    return InvalidArgument("cut.tokens is ", leaves,
                           ", but this model has no sequence of tokens to cut; leave it out");
  }
  const int64_t time = dataset.target_shape().elements();
  if (TokenOrder{.time = time, .leaves = leaves}.Fits()) return absl::OkStatus();
  return InvalidArgument("cut.tokens is ", leaves, ", and cuts each sequence into ", 2 * leaves,
                         " chunks, which do not divide its ", time,
                         " tokens; change cut.tokens, or data.context");
}

absl::Status CheckLossRuns(const Model& model, int64_t rows) {
  if (rows == 0 || model.splits_sequence) return absl::OkStatus();
  return InvalidArgument("loss.rows is ", rows,
                         ", but this model makes no logits of tokens; leave it out");
}

// Bytes that this process may use at most: the machine's memory, or a limit below it (ulimit -v).
int64_t MemoryHere() {
  int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    bytes = std::min(bytes, static_cast<int64_t>(limit.rlim_cur));
  }
  return bytes;
}

// Checks the runs that a command line names: one, or several legs, which share their data.
class RunChecker {
 public:
  // `program`: the strategy whose program it is, by which the run directory is named.
  RunChecker(const CommandLine& command_line, std::string program, const ModelFactory& make_model,
             RanksHere here)
      : command_line_(command_line),
        program_(std::move(program)),
        make_model_(make_model),
        here_(here) {}

  // `given`: all that the user says. `record` notes the keys that are asked for; null: nobody wants
  // to know.
  absl::StatusOr<TrainingRun> Check(const StrategyDefinition& strategy, const Config& given,
                                    ConfigRecord* record);

  // Gives all legs of a run the same devices, enough for the one with the most ranks: a rank keeps
  // its own from leg to leg.
  absl::Status MakeDevices(absl::Span<TrainingRun> legs) const;

 private:
  const CommandLine& command_line_;
  const std::string program_;
  const ModelFactory& make_model_;
  const RanksHere here_;
  std::shared_ptr<const Dataset> dataset_;  // null before the first check
};

// The sampler of the run's dataset.
absl::Status MakeSampler(TrainingRun& run) {
  LS_ASSIGN_OR_RETURN(
      const Sampler sampler,
      Sampler::Create(*run.dataset, {.seed = run.settings.seed,
                                     .global_batch = run.settings.batch.size,
                                     .shards = run.settings.cut.shards,
                                     .micro_batches = run.settings.cut.micro_batches,
                                     .order = UsualOrder(run.dataset->task())}));
  run.sampler = std::make_shared<const Sampler>(sampler);
  return absl::OkStatus();
}

}  // namespace

absl::Status ReplaceDataset(TrainingRun& run, std::shared_ptr<const Dataset> dataset) {
  if (run.next != nullptr) {
    return absl::InvalidArgumentError("the dataset of a run with legs cannot be replaced");
  }
  run.dataset = std::move(dataset);
  return MakeSampler(run);
}

std::unique_ptr<Strategy> MakeStrategy(const TrainingRun& run, Rank& rank, Model model,
                                       std::vector<BlockProfile> profiles) {
  return run.strategy.make({.rank = rank,
                            .model = std::move(model),
                            .tensors = run.tensors->Get(),
                            .settings = run.settings,
                            .targets_per_sample = run.dataset->target_shape().elements(),
                            .packs_documents = run.dataset->packs_documents(),
                            .config = run.config,
                            .profiles = std::move(profiles)});
}

namespace {

absl::StatusOr<TrainingRun> RunChecker::Check(const StrategyDefinition& strategy,
                                              const Config& given, ConfigRecord* wanted) {
  TrainingRun run;
  ConfigRecord own;
  ConfigRecord* const record = wanted == nullptr ? &own : wanted;
  RanksHere here = here_;
  LS_ASSIGN_OR_RETURN(run.config, WithPreset(strategy.name, strategy.keys, given));
  run.config.RecordInto(record);
  LS_ASSIGN_OR_RETURN(run.workload, CheckTables(run.config, strategy));
  if (CountsEpochs(run.config)) {
    if (dataset_ == nullptr) {
      LS_ASSIGN_OR_RETURN(dataset_, MakeDataset(run.config, command_line_.data));
    }
    LS_ASSIGN_OR_RETURN(run.config, WithStepsOfEpochs(run.config, dataset_->size(Split::kTrain)));
    run.config.RecordInto(record);
  }
  LS_ASSIGN_OR_RETURN(run.settings, ReadSettings(run.config));
  run.device = command_line_.device;
  here.ranks = static_cast<int>(run.settings.mesh.ranks());
  LS_RETURN_IF_ERROR(strategy.check(run.config, run.settings));
  if (run.settings.threads == 0) {
    const int64_t cores = std::thread::hardware_concurrency();
    const int64_t sharers = here.processes > 0 ? here.processes : here.ranks;
    run.settings.threads = std::max<int64_t>(1, cores / sharers);
  }
  run.ranks_here = here.processes > 0 ? here.processes : here.ranks;
  run.strategy = strategy;
  run.strategy_name = strategy.name;
  const auto& lora = run.settings.lora;
  run.make_model = Prepared(make_model_, strategy, lora, run.settings.cut.features);
  if (dataset_ == nullptr) {
    LS_ASSIGN_OR_RETURN(dataset_, MakeDataset(run.config, command_line_.data));
  }
  run.dataset = dataset_;
  LS_ASSIGN_OR_RETURN(const Model model, run.make_model(run.config, *run.dataset));
  LS_RETURN_IF_ERROR(Annotate(VerifySkips(model.blocks),
                              "the model's blocks must stash each skip once, and pop it once in a "
                              "later block; blocks that are used twice need name spaces "
                              "(Block::Isolate)"));
  LS_RETURN_IF_ERROR(strategy.check_model(run.config, run.settings, model));
  LS_RETURN_IF_ERROR(CheckFeatures(model, run.settings.cut.features));
  LS_RETURN_IF_ERROR(CheckProbedPlaces(run.settings.probe, model));
  LS_RETURN_IF_ERROR(CheckTokens(model, *run.dataset, run.settings.cut.tokens));
  LS_RETURN_IF_ERROR(CheckLossRuns(model, run.settings.loss.rows));
  run.experts = model.experts;
  run.parameters = model.ParameterCount();
  run.trained_parameters = model.TrainedCount();
  // A run that is resumed hardly ever needs them, and they may be gone by now; but the base of
  // adapters is in no checkpoint of theirs.
  if (!model.initial_weights.empty() && (!command_line_.resume || lora)) {
    LS_RETURN_IF_ERROR(CheckInitialWeights(model));
  }
  LS_RETURN_IF_ERROR(MakeSampler(run));
  run.out = command_line_.out;
  if (run.out.empty()) {
    run.out = UserPath(absl::StrCat("runs/", run.workload, "/", program_));
  }
  run.resume = command_line_.resume;
  run.are_processes = here.processes > 0;
  run.end_step = run.settings.steps;
  // What is not recorded, as ranks read it at the same time.
  LS_ASSIGN_OR_RETURN(run.config,
                      ResolvedConfig(run.config, *record, TablesOf(strategy), run.settings));
  run.model_fingerprint = ModelFingerprint(run.config, *record);
  run.tensors =
      std::make_shared<RunTensors>([make_model = run.make_model, config = run.config,
                                    dataset = run.dataset] { return make_model(config, *dataset); },
                                   run.settings.mesh);
  return run;
}

absl::Status RunChecker::MakeDevices(absl::Span<TrainingRun> legs) const {
  RanksHere here = here_;
  here.ranks = 0;
  for (const TrainingRun& leg : legs) here.ranks = std::max(here.ranks, leg.settings.mesh.ranks());
  const TrainingRun& first = legs.front();
  LS_ASSIGN_OR_RETURN(const std::shared_ptr<RankDevices> devices,
                      RankDevices::Create(first.device, here, first.settings.instructions));
  for (TrainingRun& leg : legs) leg.devices = devices;
  return absl::OkStatus();
}

// The strategy that a leg names.
absl::StatusOr<const StrategyDefinition*> FindStrategy(
    const std::string& name, const std::vector<StrategyDefinition>& strategies) {
  std::vector<std::string> names;
  for (const StrategyDefinition& strategy : strategies) {
    if (strategy.name == name) return &strategy;
    names.push_back(strategy.name);
  }
  return InvalidArgument("there is no strategy '", name, "'; use one of ",
                         absl::StrJoin(names, ", "));
}

// Whether a later leg goes on with the first one's curve: its mesh may have decided the cut.
absl::Status CheckSameCut(const TrainingRun& first, const TrainingRun& leg) {
  const CutSettings &ours = first.settings.cut, &theirs = leg.settings.cut;
  const auto check = [](const char* key, int64_t before, int64_t now) {
    if (before == now) return absl::OkStatus();
    return InvalidArgument("cut.", key, " would be ", now, ", as its mesh says, but is ", before,
                           " in the first leg; state cut.", key);
  };
  return Both(Both(check("shards", ours.shards, theirs.shards),
                   check("micro_batches", ours.micro_batches, theirs.micro_batches)),
              Both(check("tokens", ours.tokens, theirs.tokens),
                   check("features", ours.features, theirs.features)));
}

// The run of one leg.
absl::StatusOr<TrainingRun> CheckLeg(const Leg& leg, const Config& given,
                                     const std::vector<StrategyDefinition>& strategies,
                                     RunChecker& checker, ConfigRecord* record) {
  LS_ASSIGN_OR_RETURN(const StrategyDefinition* const strategy,
                      FindStrategy(leg.formation.strategy, strategies));
  Config config = given;
  for (const std::string& assignment : leg.formation.assignments) {
    LS_RETURN_IF_ERROR(config.Set(assignment));
  }
  return checker.Check(*strategy, config, record);
}

// What config.toml says of a run with legs. `record`: of the first of them.
absl::StatusOr<Config> ConfigOfLegs(const TrainingRun& first, const Config& given,
                                    const ConfigRecord& record) {
  Config common = given;
  if (CountsEpochs(common)) {
    LS_ASSIGN_OR_RETURN(common, WithStepsOfEpochs(common, first.dataset->size(Split::kTrain)));
  }
  return ResolvedConfigOfLegs(common, record, TablesOf(first.strategy), first.settings);
}

// The runs of all legs that begin before the last step, as a list from the first on.
absl::StatusOr<TrainingRun> CheckLegs(const std::vector<Leg>& legs, const Config& given,
                                      const std::vector<StrategyDefinition>& strategies,
                                      RunChecker& checker, ConfigRecord* record) {
  std::vector<TrainingRun> runs;
  ConfigRecord own;
  ConfigRecord* const first = record == nullptr ? &own : record;
  int64_t end = 0;
  for (size_t i = 0; i < legs.size() && (i == 0 || end < runs.front().settings.steps); ++i) {
    const std::string where = absl::StrCat("train.legs, leg ", i + 1);
    absl::StatusOr<TrainingRun> run =
        CheckLeg(legs[i], given, strategies, checker, i == 0 ? first : nullptr);
    LS_RETURN_IF_ERROR(Annotate(run.status(), where));
    if (i > 0) LS_RETURN_IF_ERROR(Annotate(CheckSameCut(runs.front(), *run), where));
    end += legs[i].steps;
    run->end_step = std::min(end, run->settings.steps);
    runs.push_back(*std::move(run));
  }
  runs.back().end_step = runs.back().settings.steps;
  LS_ASSIGN_OR_RETURN(runs.front().config_of_legs, ConfigOfLegs(runs.front(), given, *first));
  LS_RETURN_IF_ERROR(checker.MakeDevices(absl::MakeSpan(runs)));
  while (runs.size() > 1) {
    TrainingRun last = std::move(runs.back());
    runs.pop_back();
    runs.back().next = std::make_shared<const TrainingRun>(std::move(last));
  }
  return std::move(runs.front());
}

}  // namespace

const TrainingRun& LegAt(const TrainingRun& run, int64_t step) {
  const TrainingRun* leg = &run;
  while (step >= leg->end_step && leg->next != nullptr) leg = leg->next.get();
  return *leg;
}

const TrainingRun& LastLeg(const TrainingRun& run) { return LegAt(run, run.settings.steps); }

int WorldSize(const TrainingRun& run) {
  int ranks = 0;
  for (const TrainingRun* leg = &run; leg != nullptr; leg = leg->next.get()) {
    ranks = std::max(ranks, leg->settings.mesh.ranks());
  }
  return ranks;
}

absl::StatusOr<TrainingRun> CheckRun(const CommandLine& command_line,
                                     const StrategyDefinition& strategy,
                                     const ModelFactory& make_model, RanksHere here,
                                     ConfigRecord* record) {
  LS_ASSIGN_OR_RETURN(const Config given, LoadConfig(command_line));
  LS_RETURN_IF_ERROR(CheckMovedKeys(given));
  RunChecker checker(command_line, strategy.name, make_model, here);
  LS_ASSIGN_OR_RETURN(TrainingRun run, checker.Check(strategy, given, record));
  run.given = given;
  LS_RETURN_IF_ERROR(checker.MakeDevices(absl::MakeSpan(&run, 1)));
  return run;
}

absl::StatusOr<TrainingRun> CheckWholeRun(const CommandLine& command_line,
                                          const StrategyDefinition& strategy,
                                          const ModelFactory& make_model, RanksHere here,
                                          const std::vector<StrategyDefinition>& strategies,
                                          ConfigRecord* record) {
  LS_ASSIGN_OR_RETURN(const Config given, LoadConfig(command_line));
  LS_RETURN_IF_ERROR(CheckMovedKeys(given));
  LS_ASSIGN_OR_RETURN(const std::vector<Leg> legs, ReadLegs(given));
  if (legs.empty()) return CheckRun(command_line, strategy, make_model, here, record);
  RunChecker checker(command_line, strategy.name, make_model, here);
  return CheckLegs(legs, given, strategies, checker, record);
}

absl::Status CheckThreads(const TrainingRun& run) {
  if (WorldSize(run) <= kMostRanksHere) return absl::OkStatus();
  return InvalidArgument("mesh makes ", WorldSize(run),
                         " ranks; this machine's threads carry at most ", kMostRanksHere);
}

absl::StatusOr<TrainingRun> PrepareRun(const CommandLine& command_line,
                                       const StrategyDefinition& strategy,
                                       const ModelFactory& make_model, RanksHere here,
                                       const std::vector<StrategyDefinition>& strategies) {
  ConfigRecord record;
  LS_ASSIGN_OR_RETURN(TrainingRun run,
                      CheckWholeRun(command_line, strategy, make_model, here, strategies, &record));
  if (here.processes == 0) LS_RETURN_IF_ERROR(CheckThreads(run));
  LS_ASSIGN_OR_RETURN(run.keys, KeysOfRun(record, *run.dataset));
  run.keys["strategy"] = run.strategy_name;
  run.allowed_changes = command_line.allowed_changes;
  LS_RETURN_IF_ERROR(CheckAllowedChanges(run.allowed_changes, KeysOfCurve(run.keys)));
  if (!here.has_first) {
    run.directory = RunDirectory::OfOtherProcess(run.out);
    return run;
  }
  // Copies in memory are perhaps another machine's.
  const bool may_be_elsewhere = here.processes > 0 && InMemorySettingsOf(run.config).every > 0;
  const RunDirectory::Use use = !run.resume        ? RunDirectory::Use::kNew
                                : may_be_elsewhere ? RunDirectory::Use::kResumeFromElsewhere
                                                   : RunDirectory::Use::kResume;
  LS_ASSIGN_OR_RETURN(run.directory, RunDirectory::Claim(run.out, use));
  return run;
}

absl::StatusOr<TrainingRun> PrepareNext(const CommandLine& command_line, const Formation& formation,
                                        const ModelFactory& make_model,
                                        const std::vector<StrategyDefinition>& strategies,
                                        const TrainingRun& before) {
  ConfigRecord record;
  Config given = before.given;
  const CutSettings& cut = before.settings.cut;
  const auto keep = [&given](const char* key, bool is_of_mesh, int64_t number) {
    return is_of_mesh ? given.Set(absl::StrCat("cut.", key, "=", number)) : absl::OkStatus();
  };
  LS_RETURN_IF_ERROR(keep("shards", cut.shards_are_of_mesh, cut.shards));
  LS_RETURN_IF_ERROR(keep("tokens", cut.tokens_are_of_mesh, cut.tokens));
  LS_RETURN_IF_ERROR(keep("features", cut.features_are_of_mesh, cut.features));
  for (const std::string& assignment : formation.assignments) {
    LS_RETURN_IF_ERROR(given.Set(assignment));
  }
  const StrategyDefinition* strategy = &before.strategy;
  if (formation.strategy != before.strategy_name) {
    LS_ASSIGN_OR_RETURN(strategy, FindStrategy(formation.strategy, strategies));
  }
  RunChecker checker(command_line, before.strategy_name, make_model, RanksHere());
  LS_ASSIGN_OR_RETURN(TrainingRun run, checker.Check(*strategy, given, &record));
  LS_RETURN_IF_ERROR(CheckSameCut(before, run));
  LS_RETURN_IF_ERROR(checker.MakeDevices(absl::MakeSpan(&run, 1)));
  LS_ASSIGN_OR_RETURN(run.keys, KeysOfRun(record, *run.dataset));
  run.keys["strategy"] = run.strategy_name;
  run.allowed_changes = before.allowed_changes;
  run.out = before.out;
  run.directory = before.directory;
  run.stop = before.stop;
  run.speaks = before.speaks;
  return run;
}

absl::Status CheckFits(const TrainingRun& run) {
  if (run.next != nullptr) LS_RETURN_IF_ERROR(CheckFits(*run.next));
  if (run.device != DeviceType::kCpu) return absl::OkStatus();
  const int64_t ranks = run.settings.mesh.ranks();
  const int64_t weight = SizeOf(run.settings.precision.compute);
  const int64_t model = (run.parameters + run.trained_parameters) / ranks * run.ranks_here * weight;
  const int64_t values =
      run.dataset->input_shape().elements() + run.dataset->target_shape().elements();
  const std::array<int64_t, 3> batch = {run.settings.largest_micro_batch(), values,
                                        int64_t{sizeof(float)}};
  const std::optional<int64_t> batch_bytes = CheckedProduct(batch);
  const int64_t room = MemoryHere();
  if (model > room) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the model has ", FormatCount(run.parameters),
                     " parameters: its weights and "
                     "gradients alone take ",
                     FormatBytes(model), " here, and this process may have ", FormatBytes(room),
                     "; lower the sizes in [model]"));
  }
  if (!batch_bytes || *batch_bytes > room) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a micro-batch of ", run.settings.largest_micro_batch(), " samples of ",
                     values, " numbers does not fit into the ", FormatBytes(room),
                     " that this process may have; lower batch.size, or raise cut.micro_batches"));
  }
  return absl::OkStatus();
}

double TimeoutOf(const CommandLine& command_line) {
  double seconds = Settings().timeout_seconds;
  const absl::StatusOr<Config> config = LoadConfig(command_line);
  if (!config.ok()) return seconds;
  ConfigReader reader(config->Table("run"));
  reader.Read("timeout_seconds", &seconds, {.greater_than = 0, .at_most = kMostSeconds});
  return seconds;
}

void LeaveError(const CommandLine& command_line, const absl::StatusOr<TrainingRun>& run,
                const absl::Status& error) {
  if (run.ok() && run->directory->has_begun()) {
    if (run->directory->is_there()) LeaveError(run->out, error);
    return;
  }
  // A resumed run that has not begun is left as it was found, and so is an earlier run.
  const std::string out = run.ok() ? run->out : command_line.out;
  if (!out.empty() && !command_line.resume) LeaveErrorInNewDirectory(out, error);
}

}  // namespace lockstep
