#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/comm/launch.h"
#include "core/config/config.h"
#include "core/data/cifar10.h"
#include "core/data/token_file.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/report/metrics.h"
#include "core/report/row_file.h"
#include "core/report/summary.h"
#include "core/run/leg/training_run.h"
#include "core/run/trainer.h"
#include "core/text/byte_pairs.h"
#include "models/models.h"
#include "strategies/presets.h"
#include "strategies/schedules/named_schedules.h"
#include "strategies/schedules/schedule.h"
#include "strategies/schedules/simulation.h"
#include "tools/compare/report.h"
#include "tools/experiment/run_record.h"
#include "tools/hostile/target.h"
#include "tools/report/html.h"
#include "tools/report/text.h"
#include "tools/timeline/picture.h"
#include "tools/timeline/step_trace.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr char kWorkload[] = R"(name = "hostile"
[train]
steps = 2
clip_norm = 1.0
[batch]
size = 4
[cut]
shards = 2
[model]
kind = "transformer"
layers = 2
heads = 2
width = 8
[data]
kind = "markov"
vocabulary = 5
order = 1
successors = 2
context = 4
train_samples = 64
validation_samples = 4
[optimizer]
kind = "adamw"
[schedule]
learning_rate = 0.01
[validation]
batches = 1
[run]
threads = 1
timeout_seconds = 10
)";

// Without waiting for the disk, as tries write many.
void Write(const std::string& path, const std::string& contents) {
  MakeDirectories(fs::path(path).parent_path().string()).IgnoreError();
  std::ofstream(path, std::ios::binary) << contents;
}

// --- configurations
// --------------------------------------------------------------------------------

const StrategyDefinition& AnyStrategy(HostileRandom& random) {
  static const auto& all = *new std::vector<StrategyDefinition>(AllStrategies());
  return all[Draw(random, all.size())];
}

// Whether training it takes no time and no memory to speak of: what is large and right is left out.
bool IsSmall(const TrainingRun& run) {
  const Settings& settings = run.settings;
  const int64_t validated = run.dataset->size(Split::kValidation);
  const int64_t targets = run.dataset->target_shape().elements();
  return settings.steps <= 4 && settings.batch.size <= 64 && settings.threads <= 4 &&
         settings.mesh.ranks() <= 8 && run.parameters <= 1'000'000 && targets <= 4096 &&
         // The last batch of a split has as many rows as others, however few its samples are.
         validated <= 1000 && settings.validation.batch_size <= 1000 &&
         // Long sequences are few: what attention takes grows with the square of their length.
         (settings.batch.size * settings.steps + validated) * targets <= 1 << 16 &&
         settings.timeout_seconds >= 1;
}

absl::Status Train(const CommandLine& command_line, const StrategyDefinition& strategy) {
  LS_ASSIGN_OR_RETURN(const TrainingRun run, PrepareRun(command_line, strategy, MakeModel));
  LS_RETURN_IF_ERROR(CheckFits(run));
  if (!IsSmall(run)) return absl::OkStatus();
  LS_ASSIGN_OR_RETURN(const std::vector<RankReport> reports, TrainRanks(run));
  return WriteRunSummary(run, reports);
}

// A command line for the workload `path`, whose run leaves its files below the folder.
CommandLine RunIn(const std::string& folder, const std::string& path) {
  CommandLine command_line;
  command_line.configs = {path};
  command_line.out = folder + "/out";
  RemoveTree(command_line.out);
  return command_line;
}

// The keys that the workload's run asks for.
absl::StatusOr<std::vector<std::string>> Keys(const std::string& path,
                                              const StrategyDefinition& strategy) {
  CommandLine command_line;
  command_line.configs = {path};
  ConfigRecord record;
  LS_RETURN_IF_ERROR(CheckRun(command_line, strategy, MakeModel, {}, &record).status());
  std::vector<std::string> keys;
  for (const auto& [table, members] : record) {
    for (const RecordedKey& key : members) {
      keys.push_back(absl::StrCat(table, table.empty() ? "" : ".", key.name));
    }
  }
  return keys;
}

absl::Status TryAssignments(HostileRandom& random, const std::string& folder) {
  const StrategyDefinition& strategy = AnyStrategy(random);
  const std::string path = folder + "/workload.toml";
  const absl::StatusOr<std::vector<std::string>> keys = Keys(path, strategy);
  CommandLine command_line = RunIn(folder, path);
  const uint64_t changes = 1 + Draw(random, 3);
  for (uint64_t i = 0; i < changes; ++i) {
    const std::string key =
        keys.ok() ? (*keys)[Draw(random, keys->size())] : std::string("train.steps");
    command_line.assignments.push_back(absl::StrCat(key, "=", HostileValue(random)));
  }
  return Train(command_line, strategy);
}

absl::Status TryConfiguration(HostileRandom& random, const std::string& folder) {
  const std::string path = folder + "/mutated.toml";
  Write(path, Mutated(kWorkload, random));
  return Train(RunIn(folder, path), AnyStrategy(random));
}

HostileTarget Configurations(const char* name,
                             absl::Status (*attempt)(HostileRandom&, const std::string&)) {
  return {.name = name,
          .prepare =
              [](const std::string& folder) {
                Write(folder + "/workload.toml", kWorkload);
                return absl::OkStatus();
              },
          .attempt = attempt};
}

// --- checkpoints
// -----------------------------------------------------------------------------------

std::vector<StateTensor> SmallState(Kernels& kernels, int rank, int ranks) {
  std::vector<StateTensor> state;
  for (const char* name : {"a", "b", "optimizer.first_moment.a"}) {
    const int64_t part = 60 / ranks;
    StateTensor tensor = {name, kernels.Empty({part}), {60}, rank * part};
    kernels.Fill(tensor.tensor, 0.5f);
    state.push_back(tensor);
  }
  return state;
}

absl::Status SaveSmall(const std::string& folder, CheckpointFiles files) {
  return RunRanks(2, {}, [&](RankHandle& handle) {
    CpuAllocator allocator;
    CpuKernels kernels(allocator);
    return SaveCheckpoint(folder, {.step = 3, .model = "m", .strategy = "s"},
                          SmallState(kernels, handle.rank(), 2), {.files = files}, kernels,
                          handle.comm());
  });
}

// Whatever was changed, nobody goes on from it.
absl::Status TryCheckpoint(HostileRandom& random, const std::string& folder) {
  const bool is_whole = Draw(random, 2) == 0;
  const std::string checkpoint = absl::StrCat(
      folder, is_whole ? "/whole/step-00000003.safetensors" : "/sharded/step-00000003");
  const std::string file = is_whole ? checkpoint : checkpoint + "/shard-00001-of-00002.safetensors";
  LS_ASSIGN_OR_RETURN(const std::string original, ReadFile(file));
  const std::string mutated = Mutated(original, random);
  Write(file, mutated);
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  const auto info = LoadCheckpoint(checkpoint, {.model = "m"}, SmallState(kernels, 0, 1), kernels);
  Write(file, original);
  if (info.ok() && mutated != original) {
    return absl::InternalError("a changed checkpoint was accepted");
  }
  return info.status();
}

// --- files
// -----------------------------------------------------------------------------------------

// A target that mutates one of some files, by name, and reads them.
HostileTarget Files(const std::string& name, const std::map<std::string, std::string>& files,
                    const std::function<absl::Status(const std::string& folder)>& read) {
  return {.name = name,
          .prepare =
              [files](const std::string& folder) {
                for (const auto& [file, contents] : files) Write(folder + "/" + file, contents);
                return absl::OkStatus();
              },
          .attempt =
              [files, read](HostileRandom& random, const std::string& folder) {
                auto file = files.begin();
                std::advance(file, Draw(random, files.size()));
                const std::string path = folder + "/" + file->first;
                Write(path, Mutated(file->second, random));
                const absl::Status status = read(folder);
                Write(path, file->second);
                return status;
              }};
}

std::string Bytes(uint64_t value, size_t size) {
  return std::string(reinterpret_cast<const char*>(&value), size);
}

std::string TokenFileBytes() {
  std::string bytes = absl::StrCat(kTokenFileBeginning, Bytes(1, 4), Bytes(2, 4), Bytes(300, 8),
                                   Bytes(8, 8), Bytes(5, 8), std::string(24, '\0'));
  for (uint64_t token = 0; token < 8; ++token) bytes += Bytes(token * 40, 2);
  return bytes;
}

absl::Status ReadTokens(const std::string& folder) {
  LS_ASSIGN_OR_RETURN(const TokenFile file, TokenFile::Open(folder + "/tokens"));
  std::vector<int32_t> tokens(static_cast<size_t>(file.tokens()));
  return file.Copy(0, absl::MakeSpan(tokens));
}

std::string EncoderJson() {
  std::string json = "{";
  for (int id = 0; id < 256; ++id) {
    const bool is_printable = (id > 0x20 && id < 0x7F) || (id > 0xA0 && id != 0xAD);
    static int next = 256;
    const int character = is_printable ? id : next++;
    absl::StrAppend(&json, id == 0 ? "" : ", ", "\"");
    // As UTF-8, or escaped where JSON wants it.
    if (character == '"' || character == '\\') json += '\\';
    if (character < 0x80) {
      json += static_cast<char>(character);
    } else {
      json += static_cast<char>(0xC0 | character >> 6);
      json += static_cast<char>(0x80 | (character & 0x3F));
    }
    absl::StrAppend(&json, "\": ", id);
  }
  return json + ", \"ab\": 256}";
}

absl::Status ReadBytePairs(const std::string& folder) {
  LS_ASSIGN_OR_RETURN(const BytePairs pairs, BytePairs::Load(folder));
  pairs.Decode(pairs.Encode("ab abab c\n"));
  return absl::OkStatus();
}

absl::Status ReadSchedule(const std::string& folder) {
  LS_ASSIGN_OR_RETURN(const std::string csv, ReadFile(folder + "/schedule.csv"));
  LS_ASSIGN_OR_RETURN(const Schedule schedule, ScheduleFromCsv(csv, "schedule.csv"));
  LS_RETURN_IF_ERROR(Validate(schedule));
  Simulate(schedule, std::vector<StageCosts>(static_cast<size_t>(schedule.stages())), 0.5);
  return absl::OkStatus();
}

absl::Status ReadCifar(const std::string& folder) {
  return Cifar10::Load(folder, {.directory = "."}).status();
}

constexpr char kTrace[] = R"({"traceEvents": [
{"ph": "X", "pid": 0, "tid": 0, "name": "step 1", "ts": 10, "dur": 900, "args": {}},
{"ph": "X", "pid": 1, "tid": 0, "name": "step 1", "ts": 10, "dur": 900, "args": {}},
{"ph": "X", "pid": 0, "tid": 0, "name": "forward", "ts": 10, "dur": 100, "args": {"micro_batch": 1}},
{"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "communication"}},
{"ph": "X", "name": "all_reduce loss", "pid": 1, "tid": 2, "ts": 140, "dur": 10, "args": {"bytes": 8}},
{"ph": "C", "name": "memory", "pid": 1, "ts": 50, "args": {"gradients": 3, "parameters": 7}}]})";

constexpr char kSummary[] = R"({"workload": "w", "strategy": "ddp", "mesh": "pp=1,dp=2,tp=1",
"ranks": 2, "shards": 2, "micro_batches": 3, "tokens": 4, "features": 5, "steps": 2, "loss": 1.5,
"validation_loss": 1.625, "validation_accuracy": 0.25, "parameter_hash": "00ff", "loss_scale": 2,
"step_seconds": 0.5, "time_of_step": {"slowest rank": {"predicted": 0.25, "measured": 0.5}},
"tokens_per_second": 2048.0, "memory_peak": 4096,
"memory": {"parameters": {"predicted": 1000, "measured": 1024}},
"traffic_bytes_per_step": {"all_reduce gradients": {"predicted": 1000.0, "measured": 1001.0}},
"per_rank": [{"time": {"forward": 0.1}}, {"memory_peak": 96, "memory_at_peak": {"gradients": 32}}],
"parameters": 1000, "trained_parameters": 30, "checkpoint_bytes": 512, "loss_floor": 1.4})";

// A run's directory, shown beside itself: all that compare and timeline read.
absl::Status Compare(const std::string& folder) {
  const RunRecord run = ReadRunRecord(folder + "/run");
  const Report report = ComparisonReport(CompareRuns({run, run}));
  TextOf(report);
  HtmlOf(report);
  if (run.step_trace) TimelinePicture(*run.step_trace, "run");
  return absl::OkStatus();
}

absl::Status ReadRowFiles(const std::string& folder) {
  for (const auto& [name, format] :
       {std::pair("/run/losses.csv", &kLossesCsv), {"/run/metrics.jsonl", &kMetricsJsonl}}) {
    LS_RETURN_IF_ERROR(RowFile::Check(folder + name, *format, 2, EarlierRows::kEveryStep));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<HostileTarget> HostileTargets() {
  const std::map<std::string, std::string> run = {
      {"run/config.toml", kWorkload},
      {"run/losses.csv", "step,loss\n0,2.5\n1,1.5\n"},
      {"run/metrics.jsonl", "{\"step\": 0, \"loss_scale\": 2, \"skipped\": true}\n{\"step\": 1}\n"},
      {"run/summary.json", kSummary},
      {"run/trace.json", kTrace}};
  return {
      Configurations("assignments", TryAssignments),
      Configurations("configuration", TryConfiguration),
      {.name = "checkpoint",
       .prepare =
           [](const std::string& folder) {
             LS_RETURN_IF_ERROR(SaveSmall(folder + "/whole", CheckpointFiles::kWhole));
             return SaveSmall(folder + "/sharded", CheckpointFiles::kSharded);
           },
       .attempt = TryCheckpoint},
      Files("tokens", {{"tokens", TokenFileBytes()}}, ReadTokens),
      Files("byte_pairs", {{"encoder.json", EncoderJson()}, {"vocab.bpe", "#version: 0.2\na b\n"}},
            ReadBytePairs),
      Files("schedule", {{"schedule.csv", "0F0,0F1,0B0,0B1\n,1F0,1B0,1F1,1B1\n"}}, ReadSchedule),
      Files("cifar10",
            {{"data_batch_1.bin", std::string(2 * 3073, '\1')},
             {"test_batch.bin", std::string(3073, '\1')}},
            ReadCifar),
      Files("compare", run, Compare),
      Files("rows", run, ReadRowFiles),
  };
}

}  // namespace lockstep
