#include "core/config/settings.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/config/config_reader.h"
#include "core/kernels/optimizers/registry.h"
#include "core/tensor/slice.h"

namespace lockstep {
namespace {

constexpr NumberBounds kPositive = {.at_least = 1};
constexpr NumberBounds kNotNegative = {.at_least = 0};
// More threads than this help nobody; a typing error should not start them.
constexpr int kMaxRanks = 256;
constexpr NumberBounds kFraction = {.at_least = 0, .less_than = 1};

absl::Status ReadTrain(const Config& config, Settings& settings) {
  ConfigReader reader(config.Table("train"));
  reader.Require("steps", &settings.steps, kPositive);
  reader.Read("seed", &settings.seed);
  reader.Read("clip_norm", &settings.clip_norm, kNotNegative);
  return reader.Finish();
}

absl::Status ReadMesh(const Config& config, MeshShape& mesh) {
  ConfigReader reader(config.Table("mesh"));
  int64_t ranks = 1;
  for (const MeshAxis axis : kMeshAxes) {
    reader.Read(Name(axis), &mesh[axis], {.at_least = 1, .at_most = kMaxRanks});
    ranks *= mesh[axis];
  }
  if (ranks > kMaxRanks) {
    reader.AddProblem("dp",
                      absl::StrCat("makes a mesh of ", ranks,
                                   " ranks; this machine's threads carry at most ", kMaxRanks));
  }
  return reader.Finish();
}

// After the mesh and the cut.
absl::Status ReadBatch(const Config& config, Settings& settings) {
  BatchSettings& batch = settings.batch;
  CutSettings& cut = settings.cut;
  ConfigReader reader(config.Table("batch"));
  reader.Require("size", &batch.size, kPositive);
  if (batch.size % cut.shards != 0) {
    reader.AddProblem("size", absl::StrCat("is ", batch.size, " samples, which do not divide into ",
                                           cut.shards, " shards; use a multiple of ", cut.shards));
  }
  cut.micro_batches =
      std::min(cut.micro_batches, std::max<int64_t>(1, settings.samples_of_shard()));
  return reader.Finish();
}

absl::Status ReadOptimizer(const Config& config, OptimizerOptions& optimizer) {
  ConfigReader reader(config.Table("optimizer"));
  std::vector<std::pair<std::string, OptimizerRule>> rules;
  for (const OptimizerRule& rule : AllOptimizers()) rules.emplace_back(Name(rule), rule);
  reader.RequireChoice("kind", &optimizer.rule, rules);
  reader.Read("weight_decay", &optimizer.weight_decay, kNotNegative);
  std::visit([&](auto& rule) { rule.Read(reader); }, optimizer.rule);
  return reader.Finish();
}

absl::Status ReadSchedule(const Config& config, int64_t steps, LearningRateSchedule& schedule) {
  schedule.total_steps = steps;
  ConfigReader reader(config.Table("schedule"));
  reader.ReadChoice("kind", &schedule.kind,
                    {{"constant", LearningRateSchedule::Kind::kConstant},
                     {"cosine", LearningRateSchedule::Kind::kCosine},
                     {"step", LearningRateSchedule::Kind::kStep}});
  reader.Require("learning_rate", &schedule.peak, {.greater_than = 0});
  reader.Read("warmup_steps", &schedule.warmup_steps, kNotNegative);
  reader.Read("total_steps", &schedule.total_steps, kPositive);
  if (schedule.kind == LearningRateSchedule::Kind::kCosine) {
    reader.Read("floor", &schedule.floor, kNotNegative);
  } else if (schedule.kind == LearningRateSchedule::Kind::kStep) {
    reader.Require("milestones", &schedule.milestones, kNotNegative);
    reader.Read("factor", &schedule.factor, {.greater_than = 0});
  }
  return reader.Finish();
}

absl::Status ReadRest(const Config& config, Settings& settings) {
  ConfigReader validation(config.Table("validation"));
  validation.Read("at_start", &settings.validation.at_start);
  validation.Read("every", &settings.validation.every, kNotNegative);
  validation.Read("batches", &settings.validation.batches, kNotNegative);
  validation.Read("batch_size", &settings.validation.batch_size, kNotNegative);
  LS_RETURN_IF_ERROR(validation.Finish());
  if (settings.validation.batch_size == 0) {
    settings.validation.batch_size = settings.largest_micro_batch();
  }

  ConfigReader checkpoint(config.Table("checkpoint"));
  checkpoint.Read("every", &settings.checkpoint.every, kNotNegative);
  checkpoint.Read("keep", &settings.checkpoint.keep, kNotNegative);
  checkpoint.ReadChoice(
      "files", &settings.checkpoint.files,
      {{"sharded", CheckpointFiles::kSharded}, {"whole", CheckpointFiles::kWhole}});
  LS_RETURN_IF_ERROR(checkpoint.Finish());

  ConfigReader hashes(config.Table("hashes"));
  hashes.Read("every", &settings.hash_every, kNotNegative);
  LS_RETURN_IF_ERROR(hashes.Finish());

  settings.trace = {.first_step = 2, .steps = 3};
  ConfigReader trace(config.Table("trace"));
  trace.Read("first_step", &settings.trace.first_step, kNotNegative);
  trace.Read("steps", &settings.trace.steps, kNotNegative);
  LS_RETURN_IF_ERROR(trace.Finish());

  ConfigReader memory(config.Table("memory"));
  memory.Read("limit", &settings.memory_limit, kNotNegative);
  LS_RETURN_IF_ERROR(memory.Finish());

  ConfigReader comm(config.Table("comm"));
  comm.ReadChoice("nccl_reductions", &settings.nccl_reductions,
                  {{"fast", NcclReductions::kFast}, {"exact", NcclReductions::kExact}});
  LS_RETURN_IF_ERROR(comm.Finish());

  ConfigReader run(config.Table("run"));
  run.Read("threads", &settings.threads, kNotNegative);
  run.ReadChoice("instructions", &settings.instructions,
                 {{"widest", WidestInstructionSet()}, {"avx2", InstructionSet::kAvx2}});
  run.Read("timeout_seconds", &settings.timeout_seconds, {.greater_than = 0});
  return run.Finish();
}

bool IsFalse(const ConfigValue& value) {
  const bool* on = value.As<bool>();
  return on != nullptr && !*on;
}

}  // namespace

int64_t Settings::samples_of(int64_t micro_batch) const {
  return EvenRange(samples_of_shard(), cut.micro_batches, micro_batch % cut.micro_batches).count;
}

absl::Status ReadLora(const Config& config, Settings& settings) {
  const ConfigTable table = config.Table("lora");
  if (table.value == nullptr || IsFalse(*table.value)) return absl::OkStatus();
  LoraOptions options;
  ConfigReader reader(table);
  reader.Require("layers", &options.layers);
  if (reader.Has("layers") && options.layers.empty()) {
    reader.AddProblem("layers", "names no layer to adapt");
  }
  reader.Read("rank", &options.rank, kPositive);
  options.alpha = static_cast<double>(options.rank);
  reader.Read("alpha", &options.alpha, {.greater_than = 0});
  reader.Read("dropout", &options.dropout, kFraction);
  reader.Read("rank_stabilised", &options.rank_stabilised);
  reader.Read("learning_rate", &settings.schedule.peak, {.greater_than = 0});
  reader.Read("weight_decay", &settings.optimizer.weight_decay, kNotNegative);
  settings.lora = std::move(options);
  return reader.Finish();
}

absl::StatusOr<Settings> ReadSettings(const Config& config) {
  Settings settings;
  // All problems of all tables are told at once.
  absl::Status problems;
  const auto gather = [&problems](const absl::Status& status) {
    problems = Both(problems, status);
  };
  gather(ReadTrain(config, settings));
  gather(ReadMesh(config, settings.mesh));
  gather(ReadCut(config, settings.mesh, settings.cut));
  gather(ReadBatch(config, settings));
  absl::StatusOr<Precision> precision = ReadPrecision(config);
  gather(precision.status());
  if (precision.ok()) settings.precision = *precision;
  gather(ReadOptimizer(config, settings.optimizer));
  gather(ReadSchedule(config, settings.steps, settings.schedule));
  gather(ReadLora(config, settings));
  gather(ReadRest(config, settings));
  if (!problems.ok()) return problems;
  return settings;
}

std::vector<std::string> SettingsTables() {
  return {"train",     "mesh",     "cut",    "batch",      "precision",
          "optimizer", "schedule", "lora",   "validation", "checkpoint",
          "hashes",    "trace",    "memory", "comm",       "run"};
}

}  // namespace lockstep
