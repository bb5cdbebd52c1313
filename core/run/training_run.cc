#include "core/run/training_run.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/base/token_order.h"
#include "core/base/user_path.h"
#include "core/checkpoint/weights.h"
#include "core/config/config_reader.h"
#include "core/config/data_config.h"
#include "core/config/preset_keys.h"
#include "core/nn/lora.h"
#include "core/report/error_file.h"
#include "core/run/model_weights.h"
#include "core/tensor/allocator.h"

namespace lockstep {
namespace {

// More threads than this help nobody; a typing error should not start them.
constexpr int kMostThreads = 256;

namespace fs = std::filesystem;

// All configuration files and assignments, laid over each other.
absl::StatusOr<Config> LoadConfig(const CommandLine& command_line) {
  if (command_line.configs.empty()) {
    return absl::InvalidArgumentError(
        "no configuration: give --config FILE, e.g. an experiment's workload.toml");
  }
  Config config;
  for (const std::string& path : command_line.configs) {
    LS_ASSIGN_OR_RETURN(const Config layer, Config::FromFile(path));
    config.Merge(layer);
  }
  for (const std::string& assignment : command_line.assignments) {
    LS_RETURN_IF_ERROR(config.Set(assignment));
  }
  return config;
}

// Reads the workload's name, and refuses tables that nobody knows.
absl::StatusOr<std::string> CheckTables(const Config& config, const StrategyDefinition& strategy) {
  ConfigReader reader(config.Table(""));
  std::string name = "run";
  reader.Read("name", &name);
  std::vector<std::string> tables = SettingsTables();
  tables.insert(tables.end(), {"model", "data"});
  tables.insert(tables.end(), strategy.tables.begin(), strategy.tables.end());
  for (const std::string& table : tables) reader.Table(table);
  LS_RETURN_IF_ERROR(reader.Finish());
  return name;
}

// Moves an earlier run out of the way, to the first free <out>.<n>.
absl::Status SetAside(const std::string& out) {
  if (!fs::exists(out + "/losses.csv") && !fs::exists(out + "/checkpoints")) {
    return absl::OkStatus();
  }
  int n = 1;
  while (fs::exists(absl::StrCat(out, ".", n))) ++n;
  std::error_code error;
  fs::rename(out, absl::StrCat(out, ".", n), error);
  if (error) {
    return absl::PermissionDeniedError(
        absl::StrCat(out, ": holds an earlier run that cannot be set aside as ", out, ".", n, ": ",
                     error.message(), "; use another --out"));
  }
  return absl::OkStatus();
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

}  // namespace

std::string ModelFingerprint(const Config& config) {
  Config part = config.Only({"model", "lora"}).Without("model.init");
  const ConfigValue* lora = part.Table("lora").value;
  if (lora != nullptr && lora->As<ConfigValue::Table>() == nullptr) part = part.Without("lora");
  for (const char* key : {"lora.learning_rate", "lora.weight_decay", "lora.dropout"}) {
    part = part.Without(key);
  }
  return part.Fingerprint();
}

std::unique_ptr<Strategy> MakeStrategy(const TrainingRun& run, Rank& rank, Model model,
                                       std::vector<BlockProfile> profiles) {
  return run.strategy.make({.rank = rank,
                            .model = std::move(model),
                            .settings = run.settings,
                            .targets_per_sample = run.dataset->target_shape().elements(),
                            .config = run.config,
                            .profiles = std::move(profiles)});
}

absl::StatusOr<TrainingRun> CheckRun(const CommandLine& command_line,
                                     const StrategyDefinition& strategy,
                                     const ModelFactory& make_model, RanksHere here,
                                     ConfigRecord* record) {
  TrainingRun run;
  LS_ASSIGN_OR_RETURN(const Config given, LoadConfig(command_line));
  LS_RETURN_IF_ERROR(CheckMovedKeys(given));
  LS_ASSIGN_OR_RETURN(run.config, WithPreset(strategy.name, strategy.keys, given));
  run.config.RecordInto(record);
  LS_ASSIGN_OR_RETURN(run.workload, CheckTables(run.config, strategy));
  LS_ASSIGN_OR_RETURN(run.settings, ReadSettings(run.config));
  run.device = command_line.device;
  here.ranks = static_cast<int>(run.settings.mesh.ranks());
  LS_ASSIGN_OR_RETURN(run.devices,
                      RankDevices::Create(run.device, here, run.settings.instructions));
  LS_RETURN_IF_ERROR(strategy.check(run.config, run.settings));
  if (run.settings.threads == 0) {
    const int64_t cores = std::thread::hardware_concurrency();
    const int64_t sharers = here.processes > 0 ? here.processes : here.ranks;
    run.settings.threads = std::max<int64_t>(1, cores / sharers);
  }
  run.strategy = strategy;
  run.strategy_name = strategy.name;
  const auto& lora = run.settings.lora;
  run.make_model = Prepared(make_model, strategy, lora, run.settings.cut.features);
  LS_ASSIGN_OR_RETURN(run.dataset, MakeDataset(run.config, command_line.data));
  LS_ASSIGN_OR_RETURN(const Model model, run.make_model(run.config, *run.dataset));
  LS_RETURN_IF_ERROR(VerifySkips(model.blocks));
  LS_RETURN_IF_ERROR(strategy.check_model(run.config, run.settings, model));
  LS_RETURN_IF_ERROR(CheckFeatures(model, run.settings.cut.features));
  LS_RETURN_IF_ERROR(CheckTokens(model, *run.dataset, run.settings.cut.tokens));
  run.parameters = model.ParameterCount();
  run.trained_parameters = model.TrainedCount();
  // A run that is resumed hardly ever needs them, and they may be gone by now; but the base of
  // adapters is in no checkpoint of theirs.
  if (!model.initial_weights.empty() && (!command_line.resume || lora)) {
    LS_RETURN_IF_ERROR(CheckInitialWeights(model));
  }
  LS_ASSIGN_OR_RETURN(
      Sampler sampler,
      Sampler::Create(*run.dataset, {.seed = run.settings.seed,
                                     .global_batch = run.settings.batch.size,
                                     .shards = run.settings.cut.shards,
                                     .micro_batches = run.settings.cut.micro_batches,
                                     .order = UsualOrder(run.dataset->task())}));
  run.sampler = std::make_shared<const Sampler>(std::move(sampler));
  run.out = command_line.out;
  if (run.out.empty()) {
    run.out = UserPath(absl::StrCat("runs/", run.workload, "/", strategy.name));
  }
  run.resume = command_line.resume;
  run.config.RecordInto(nullptr);  // ranks read it at the same time
  return run;
}

absl::StatusOr<TrainingRun> PrepareRun(const CommandLine& command_line,
                                       const StrategyDefinition& strategy,
                                       const ModelFactory& make_model, RanksHere here) {
  LS_ASSIGN_OR_RETURN(TrainingRun run, CheckRun(command_line, strategy, make_model, here));
  if (here.processes == 0 && run.settings.mesh.ranks() > kMostThreads) {
    return InvalidArgument("mesh makes ", run.settings.mesh.ranks(),
                           " ranks; this machine's threads carry at most ", kMostThreads);
  }
  if (!here.has_first) return run;
  if (!run.resume) LS_RETURN_IF_ERROR(SetAside(run.out));
  LS_RETURN_IF_ERROR(MakeDirectories(run.out));
  return run;
}

void LeaveError(const CommandLine& command_line, const absl::StatusOr<TrainingRun>& run,
                const absl::Status& error) {
  const std::string out = run.ok() ? run->out : command_line.out;
  if (out.empty() || (command_line.resume && fs::exists(out + "/summary.json"))) return;
  // What cannot be written is let be: the error itself has been told, and is worth more.
  if (!MakeDirectories(out).ok()) return;
  WriteFileAtomically(absl::StrCat(out, "/", kErrorFile), absl::StrCat(error.message(), "\n"))
      .IgnoreError();
}

}  // namespace lockstep
