#include "core/config/settings.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/config/best_settings.h"
#include "core/config/config_reader.h"
#include "core/config/in_memory_settings.h"
#include "core/config/key_ranges.h"
#include "core/kernels/optimizers/registry.h"
#include "core/kernels/options.h"  // kRowLeaf
#include "core/tensor/slice.h"

namespace lockstep {
namespace {

constexpr NumberBounds kSteps = {.at_least = 1, .at_most = kMostSteps};
constexpr NumberBounds kSomeSteps = {.at_least = 0, .at_most = kMostSteps};  // 0: never, or all
// Numbers that kernels take in fp32.
constexpr NumberBounds kPositive = {.greater_than = 0, .at_most = kLargestFloat};
constexpr NumberBounds kNotNegative = {.at_least = 0, .at_most = kLargestFloat};
constexpr int kMaxRanks = 1 << 20;
constexpr NumberBounds kFraction = {.at_least = 0, .less_than = 1};

void ReadTrain(ConfigReader& reader, Settings& settings) {
  reader.Require("steps", &settings.steps, kSteps);
  double epochs = 0;  // becomes steps where the data is known (core/run/leg/epochs.h)
  reader.Read("epochs", &epochs);
  std::vector<std::string> legs;
  reader.Read("legs", &legs);
  for (const std::string& text : legs) {
    const absl::StatusOr<Leg> leg = Leg::Parse(text);
    if (!leg.ok()) {
      reader.AddProblem("legs", std::string(leg.status().message()));
      break;  // a list of thousands of wrong ones gets one line
    }
    settings.legs.push_back(*leg);
  }
  reader.Read("seed", &settings.seed);
  reader.Read("clip_norm", &settings.clip_norm, kNotNegative);
  reader.ReadChoice("on_nan", &settings.on_nan,
                    {{"stop", OnNan::kStop}, {"continue", OnNan::kContinue}});
  reader.Read("deferred_batch_norm", &settings.deferred_batch_norm);
}

void ReadMesh(ConfigReader& reader, Settings& settings) {
  MeshShape& mesh = settings.mesh;
  int64_t ranks = 1;
  for (const MeshAxis axis : kMeshAxes) {
    reader.Read(Name(axis), &mesh[axis], {.at_least = 1, .at_most = kMaxRanks});
    ranks *= mesh[axis];
  }
  reader.Read("ep", &mesh.ep, {.at_least = 1, .at_most = kMaxRanks});
  const int64_t dividers = int64_t{mesh.dp} * mesh.cp;
  if (mesh.ep < 1 || dividers % mesh.ep != 0) {
    reader.AddProblem("ep", absl::StrCat("is ", mesh.ep,
                                         ", and experts are divided among ranks along dp and cp: "
                                         "use a divisor of mesh.dp x mesh.cp, which is ",
                                         dividers));
    mesh.ep = 1;
  }
  if (ranks > kMaxRanks) {
    reader.AddProblem(
        "dp", absl::StrCat("makes a mesh of ", ranks, " ranks, and ", kMaxRanks, " are the most"));
  }
}

// After the mesh and the cut.
void ReadBatch(ConfigReader& reader, Settings& settings) {
  BatchSettings& batch = settings.batch;
  CutSettings& cut = settings.cut;
  reader.Require("size", &batch.size, {.at_least = 1, .at_most = kMostSamplesOfStep});
  if (batch.size % cut.shards != 0) {
    reader.AddProblem("size", absl::StrCat("is ", batch.size, " samples, which do not divide into ",
                                           cut.shards, " shards; use a multiple of ", cut.shards));
  }
  cut.micro_batches =
      std::min(cut.micro_batches, std::max<int64_t>(1, settings.samples_of_shard()));
}

void ReadOptimizer(ConfigReader& reader, Settings& settings) {
  OptimizerOptions& optimizer = settings.optimizer;
  std::vector<std::pair<std::string, OptimizerRule>> rules;
  for (const OptimizerRule& rule : AllOptimizers()) rules.emplace_back(Name(rule), rule);
  reader.RequireChoice("kind", &optimizer.rule, rules);
  reader.Read("weight_decay", &optimizer.weight_decay, kNotNegative);
  std::visit([&](auto& rule) { rule.Read(reader); }, optimizer.rule);
}

void ReadSchedule(ConfigReader& reader, Settings& settings) {
  using Kind = LearningRateSchedule::Kind;
  LearningRateSchedule& schedule = settings.schedule;
  schedule.total_steps = settings.steps;
  reader.ReadChoice("kind", &schedule.kind,
                    {{"constant", Kind::kConstant},
                     {"cosine", Kind::kCosine},
                     {"linear", Kind::kLinear},
                     {"wsd", Kind::kWarmupStableDecay},
                     {"step", Kind::kStep}});
  reader.Require("learning_rate", &schedule.peak, kPositive);
  reader.Read("warmup_steps", &schedule.warmup_steps, kSomeSteps);
  reader.Read("total_steps", &schedule.total_steps, kSteps);
  switch (schedule.kind) {
    case Kind::kConstant:
      break;
    case Kind::kCosine:
    case Kind::kLinear:
      reader.Read("floor", &schedule.floor, kNotNegative);
      break;
    case Kind::kWarmupStableDecay:
      reader.Read("floor", &schedule.floor, kNotNegative);
      schedule.decay_steps = std::max<int64_t>(1, schedule.total_steps / 10);
      reader.Read("decay_steps", &schedule.decay_steps, kSteps);
      if (schedule.warmup_steps + schedule.decay_steps > schedule.total_steps) {
        reader.AddProblem("decay_steps", absl::StrCat("is ", schedule.decay_steps, ": with ",
                                                      schedule.warmup_steps,
                                                      " steps of warm-up that is more than the ",
                                                      schedule.total_steps, " of the schedule"));
      }
      break;
    case Kind::kStep:
      reader.Require("milestones", &schedule.milestones, kSomeSteps);
      reader.Read("factor", &schedule.factor, kPositive);
      break;
  }
}

void ReadLoss(ConfigReader& reader, Settings& settings) {
  int64_t& rows = settings.loss.rows;
  reader.Read("rows", &rows, {.at_least = 0, .at_most = kMostRowsOfRun});
  if (rows == 0 || (rows % kRowLeaf == 0 && std::has_single_bit(static_cast<uint64_t>(rows)))) {
    return;
  }
  reader.AddProblem(
      "rows", absl::StrCat("is ", rows, ", but must be 0 (all at once) or ", kRowLeaf,
                           " times a power of two, as sums over rows are trees over leaves of ",
                           kRowLeaf, " rows; use ",
                           std::max<int64_t>(kRowLeaf, static_cast<int64_t>(std::bit_floor(
                                                           static_cast<uint64_t>(rows))))));
}

void ReadValidation(ConfigReader& reader, Settings& settings) {
  ValidationSettings& validation = settings.validation;
  reader.Read("at_start", &validation.at_start);
  reader.Read("every", &validation.every, kSomeSteps);
  reader.Read("batches", &validation.batches, kSomeSteps);
  reader.Read("batch_size", &validation.batch_size, {.at_least = 0, .at_most = kMostSamplesOfStep});
  if (validation.batch_size == 0) validation.batch_size = settings.largest_micro_batch();
  BestSettings best;  // whoever judges validations reads them again
  ReadPatience(reader, validation.every, best);
  if (best.patience > 0 && !settings.legs.empty()) {
    reader.AddProblem("patience", "ends runs of one mesh, and train.legs names several");
  }
}

void ReadCheckpoint(ConfigReader& reader, Settings& settings) {
  reader.Read("every", &settings.checkpoint.every, kSomeSteps);
  reader.Read("keep", &settings.checkpoint.keep, kSomeSteps);
  reader.ReadChoice("files", &settings.checkpoint.files,
                    {{"sharded", CheckpointFiles::kSharded}, {"whole", CheckpointFiles::kWhole}});
  reader.ReadChoice(
      "write", &settings.checkpoint.write,
      {{"background", CheckpointWrites::kBackground}, {"step", CheckpointWrites::kStep}});
  reader.ReadChoice("on_damage", &settings.checkpoint.on_damage,
                    {{"go_back", OnDamage::kGoBack}, {"stop", OnDamage::kStop}});
  BestSettings best;
  ReadBest(reader, best);
  InMemorySettings in_memory;  // whoever saves checkpoints reads them again
  ReadInMemory(reader, in_memory);
}

void ReadTrace(ConfigReader& reader, Settings& settings) {
  settings.trace = {.first_step = 2, .steps = 3};
  reader.Read("first_step", &settings.trace.first_step, kSomeSteps);
  reader.Read("steps", &settings.trace.steps, kSomeSteps);
}

void ReadProbe(ConfigReader& reader, Settings& settings) {
  ProbeSettings& probe = settings.probe;
  reader.Read("first_step", &probe.first_step, kSomeSteps);
  reader.Read("steps", &probe.steps, kSomeSteps);
  reader.Read("places", &probe.places);
  reader.Read("values", &probe.values);
  if (probe.places.empty()) {
    reader.AddProblem("places", "names no block and no layer; use [\"*\"] for all");
  }
}

void ReadRun(ConfigReader& reader, Settings& settings) {
  reader.Read("threads", &settings.threads, {.at_least = 0, .at_most = kMostThreads});
  reader.ReadChoice("instructions", &settings.instructions,
                    {{"widest", WidestInstructionSet()}, {"avx2", InstructionSet::kAvx2}});
  reader.Read("timeout_seconds", &settings.timeout_seconds,
              {.greater_than = 0, .at_most = kMostSeconds});
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
  reader.Read("rank", &options.rank, {.at_least = 1, .at_most = kMostFeatures});
  options.alpha = static_cast<double>(options.rank);
  reader.Read("alpha", &options.alpha, kPositive);
  reader.Read("dropout", &options.dropout, kFraction);
  reader.Read("rank_stabilised", &options.rank_stabilised);
  reader.Read("learning_rate", &settings.schedule.peak, kPositive);
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
  const auto read = [&](const char* table, void (*read_keys)(ConfigReader&, Settings&)) {
    ConfigReader reader(config.Table(table));
    read_keys(reader, settings);
    gather(reader.Finish());
  };
  read("train", ReadTrain);
  read("mesh", ReadMesh);
  gather(ReadCut(config, settings.mesh, settings.cut));
  read("batch", ReadBatch);
  absl::StatusOr<Precision> precision = ReadPrecision(config);
  gather(precision.status());
  if (precision.ok()) settings.precision = *precision;
  read("optimizer", ReadOptimizer);
  read("schedule", ReadSchedule);
  gather(ReadLora(config, settings));
  read("loss", ReadLoss);
  read("validation", ReadValidation);
  read("checkpoint", ReadCheckpoint);
  read("guard", [](ConfigReader& reader, Settings& guarded) {
    reader.Read("every", &guarded.guard.every, kSomeSteps);
    reader.ReadChoice("repeat_on", &guarded.guard.repeat_on,
                      {{"same_rank", RepeatOn::kSameRank}, {"other_rank", RepeatOn::kOtherRank}});
    reader.Read("loss_jump", &guarded.guard.loss_jump, {.at_least = 0, .at_most = kLargestFloat});
    reader.Read("straggler_factor", &guarded.guard.straggler_factor,
                {.at_least = 0, .at_most = kLargestFloat});
    reader.Read("straggler_steps", &guarded.guard.straggler_steps,
                {.at_least = 1, .at_most = kMostSteps});
  });
  read("hashes", [](ConfigReader& reader, Settings& hashes) {
    reader.Read("every", &hashes.hash_every, kSomeSteps);
  });
  read("metrics", [](ConfigReader& reader, Settings& metrics) {
    reader.Read("tensorboard", &metrics.tensorboard);
  });
  read("trace", ReadTrace);
  read("probe", ReadProbe);
  read("memory", [](ConfigReader& reader, Settings& memory) {
    reader.Read("limit", &memory.memory_limit, {.at_least = 0, .at_most = kMostBytes});
  });
  read("comm", [](ConfigReader& reader, Settings& comm) {
    reader.ReadChoice("nccl_reductions", &comm.nccl_reductions,
                      {{"fast", NcclReductions::kFast}, {"exact", NcclReductions::kExact}});
  });
  read("run", ReadRun);
  const bool exchanges =
      settings.guard.every > 0 && settings.guard.repeat_on == RepeatOn::kOtherRank;
  if (exchanges && settings.mesh.ranks() < 2) {
    gather(InvalidArgument(
        "guard.repeat_on is \"other_rank\", but the mesh has one rank: use \"same_rank\", or more "
        "ranks"));
  }
  if (!problems.ok()) return problems;
  return settings;
}

std::vector<std::string> SettingsTables() {
  return {"train", "mesh",  "cut",        "batch",      "precision", "optimizer", "schedule",
          "lora",  "loss",  "validation", "checkpoint", "guard",     "hashes",    "metrics",
          "trace", "probe", "memory",     "comm",       "run"};
}

}  // namespace lockstep
