// Whether foresight is quick and right:
//
//   plans   how long plans take
//   runs    runs of models that were not calibrated, under every preset, as threads and as
//           processes, each beside the prediction in its own summary
//
//   ./bazelw run //tools/plan:calibrate
//   ./bazelw run //tools/bench:foresight
//   ./bazelw run //tools/bench:foresight -- --tables plans
//
// A run's time is the median of its steps; of several rounds the fastest counts, because a
// machine's neighbours slow down now the one and now the other. The regret of a group of runs of
// one model: what the preset that should be fastest takes over what the fastest takes.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/base/subprocess.h"
#include "nlohmann/json.hpp"
#include "tools/bench/planning_speed.h"
#include "tools/experiment/paths.h"
#include "tools/report/text.h"

ABSL_FLAG(std::string, tables, "plans,runs", "what to measure");
ABSL_FLAG(std::string, plan, "tools/plan/plan", "the planner's program");
ABSL_FLAG(int, steps, 24, "of each run");
ABSL_FLAG(int, rounds, 3, "of all runs");
ABSL_FLAG(std::string, strategies, "strategies", "folder with the presets' programs");

namespace lockstep {
namespace {

constexpr double kGoalMean = 0.06, kGoalLargest = 0.15, kGoalRegret = 0.02;

struct Model {
  std::string name, config;
};
const std::vector<Model>& Models() {
  static const std::vector<Model> models = {
      {"GPT 2 x 160",
       "name = 'gpt'\n[model]\nkind = 'transformer'\nlayers = 2\nheads = 4\nwidth = 160\n"
       "[data]\nkind = 'markov'\nvocabulary = 100\norder = 1\ncontext = 96\n"
       "[batch]\nsize = 16\n[cut]\nshards = 2\nmicro_batches = 2\n"
       "[optimizer]\nkind = 'adamw'\n[schedule]\nlearning_rate = 3e-4\n"},
      {"GPT 4 x 320",
       "name = 'gpt'\n[model]\nkind = 'transformer'\nlayers = 4\nheads = 10\nwidth = 320\n"
       "[data]\nkind = 'markov'\nvocabulary = 200\norder = 1\ncontext = 80\n"
       "[batch]\nsize = 16\n[cut]\nshards = 2\nmicro_batches = 2\n"
       "[optimizer]\nkind = 'adamw'\n[schedule]\nlearning_rate = 3e-4\n"},
      {"ResNet-18 x 20",
       "name = 'resnet'\n[model]\nkind = 'resnet'\ndepth = 18\nstem = 'cifar'\nwidth = 20\n"
       "[data]\nkind = 'shapes'\n[batch]\nsize = 48\n[cut]\nshards = 2\nmicro_batches = 2\n"
       "[optimizer]\nkind = 'sgd'\nmomentum = 0.9\n[schedule]\nlearning_rate = 0.01\n"},
  };
  return models;
}

struct Preset {
  std::string name;
  int ranks;
  std::vector<std::string> assignments = {};
};
const std::vector<Preset>& Presets() {
  static const std::vector<Preset> presets = {
      {"single", 1},
      {"ddp", 1, {"mesh.dp=1"}},
      {"naive_ddp", 2, {"mesh.dp=2"}},
      {"ddp", 2, {"mesh.dp=2"}},
      {"zero1", 2, {"mesh.dp=2"}},
      {"zero2", 2, {"mesh.dp=2"}},
      {"fsdp", 2, {"mesh.dp=2"}},
      {"tp", 2, {"mesh.dp=1", "mesh.tp=2"}},
      {"layerwise", 2, {"mesh.pp=2", "mesh.dp=1"}},
      {"gpipe", 2, {"mesh.pp=2", "mesh.dp=1"}},
      {"fsdp_pipe", 2, {"mesh.pp=2", "mesh.dp=1"}},
      {"lora", 2, {"mesh.dp=2", "lora.rank=4", "lora.layers=['*']"}},
  };
  return presets;
}

struct Run {
  const Model* model;
  const Preset* preset;
  bool is_mpi = false;
  std::string skipped = {};  // why it could not run
  double predicted = 0, measured = 0;
  double memory_off = 0, bytes_off = 0;  // largest differences, as fractions of what was measured

  double error() const { return predicted / measured - 1; }
};

// The largest difference in a table of the summary between what is predicted and what was measured,
// as a fraction of the latter.
double LargestDifference(const nlohmann::json& table) {
  double largest = 0;
  for (const nlohmann::json& entry : table) {
    if (!entry.contains("predicted")) continue;
    const double measured = entry["measured"];
    const double off = std::abs(entry["predicted"].get<double>() - measured);
    largest = std::max(largest, off / std::max(1.0, measured));
  }
  return largest;
}

absl::Status Measure(const std::string& folder, Run& run) {
  const std::string config = folder + "/model.toml", out = folder + "/run";
  LS_RETURN_IF_ERROR(WriteFileAtomically(config, run.model->config));
  std::vector<std::string> arguments;
  if (run.is_mpi) {
    arguments = {"mpirun", "-n", absl::StrCat(run.preset->ranks), "--allow-run-as-root"};
    arguments[0] = FindOnPath("mpirun");
  }
  arguments.push_back(
      absl::StrCat(absl::GetFlag(FLAGS_strategies), "/", run.preset->name, "/main"));
  arguments.insert(arguments.end(), {"--config", config, "--out", out});
  std::vector<std::string> assignments = run.preset->assignments;
  assignments.insert(assignments.end(), {absl::StrCat("train.steps=", absl::GetFlag(FLAGS_steps)),
                                         "validation.batches=2", "checkpoint.keep=0"});
  for (const std::string& assignment : assignments) {
    arguments.insert(arguments.end(), {"--set", assignment});
  }
  LS_ASSIGN_OR_RETURN(const ProcessResult result, RunProcess({.arguments = arguments}));
  if (result.interrupted) return absl::CancelledError("interrupted");
  if (!result.ok()) {
    run.skipped = result.err.substr(0, result.err.find('\n'));
    return absl::OkStatus();
  }
  LS_ASSIGN_OR_RETURN(const std::string text, ReadFile(out + "/summary.json"));
  const auto summary = nlohmann::json::parse(text);
  if (!summary.contains("time_of_step")) {
    run.skipped = absl::StrCat("not predicted: ", summary.value("time_not_predicted", "?"));
    return absl::OkStatus();
  }
  const nlohmann::json& time = summary["time_of_step"]["slowest rank"];
  const double measured = time["measured"];
  run.measured = run.measured == 0 ? measured : std::min(run.measured, measured);
  run.predicted = time["predicted"];
  run.memory_off = LargestDifference(summary["memory"]);
  run.bytes_off = std::max(LargestDifference(summary["traffic_bytes_per_step"]),
                           LargestDifference(summary["traffic_bytes_once"]));
  return absl::OkStatus();
}

void Print(const Run& run) {
  const std::string ranks = absl::StrCat(run.preset->ranks, run.preset->ranks == 1 ? " rank"
                                                            : run.is_mpi           ? " MPI"
                                                                                   : " threads");
  std::printf("%-16s %-10s %-10s ", run.model->name.c_str(), run.preset->name.c_str(),
              ranks.c_str());
  if (!run.skipped.empty()) {
    std::printf("%s\n", run.skipped.c_str());
    return;
  }
  std::printf("%10s %10s %+8.1f %% %8.3f %% %8.3f %%\n", FormatDuration(run.predicted).c_str(),
              FormatDuration(run.measured).c_str(), 100 * run.error(), 100 * run.memory_off,
              100 * run.bytes_off);
}

// The largest regret of all groups of runs of one model, as threads or processes.
double LargestRegret(const std::vector<Run>& runs) {
  struct Group {
    double best = HUGE_VAL, promised = HUGE_VAL, of_promised = 0;
  };
  std::map<std::pair<std::string, bool>, Group> groups;
  for (const Run& run : runs) {
    // Adapters do another work.
    if (!run.skipped.empty() || run.preset->ranks == 1 || run.preset->name == "lora") continue;
    Group& group = groups[{run.model->name, run.is_mpi}];
    group.best = std::min(group.best, run.measured);
    if (run.predicted >= group.promised) continue;
    group.promised = run.predicted;
    group.of_promised = run.measured;
  }
  double largest = 0;
  for (const auto& [key, group] : groups) {
    largest = std::max(largest, group.of_promised / group.best - 1);
  }
  return largest;
}

absl::Status MeasureRuns() {
  std::vector<Run> runs;
  const bool has_mpi = !FindOnPath("mpirun").empty();
  for (const Model& model : Models()) {
    for (const Preset& preset : Presets()) {
      runs.push_back({.model = &model, .preset = &preset});
      if (has_mpi && preset.ranks > 1) {
        runs.push_back({.model = &model, .preset = &preset, .is_mpi = true});
      }
    }
  }
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    for (Run& run : runs) {
      if (!run.skipped.empty()) continue;
      LS_ASSIGN_OR_RETURN(const TemporaryDirectory folder, TemporaryDirectory::Create());
      LS_RETURN_IF_ERROR(Measure(folder.path(), run));
    }
  }
  std::printf("%-16s %-10s %-10s %10s %10s %10s %10s %10s\n", "model", "preset", "ranks",
              "predicted", "measured", "error", "memory", "bytes");
  double sum = 0, largest = 0, memory = 0, bytes = 0;
  int count = 0;
  for (const Run& run : runs) {
    Print(run);
    if (!run.skipped.empty()) continue;
    sum += std::abs(run.error());
    largest = std::max(largest, std::abs(run.error()));
    ++count;
    memory = std::max(memory, run.memory_off);
    bytes = std::max(bytes, run.bytes_off);
  }
  std::printf(
      "%d runs: mean error %.1f %% (goal %.0f %%), largest %.1f %% (goal %.0f %%), largest regret "
      "%.1f %% (goal %.0f %%); memory off by at most %.3f %%, bytes by %.3f %%\n",
      count, 100 * sum / count, 100 * kGoalMean, 100 * largest, 100 * kGoalLargest,
      100 * LargestRegret(runs), 100 * kGoalRegret, 100 * memory, 100 * bytes);
  return absl::OkStatus();
}

absl::StatusOr<int> RunBenchmark() {
  for (const absl::string_view table : absl::StrSplit(absl::GetFlag(FLAGS_tables), ',')) {
    if (table == "plans") {
      LS_ASSIGN_OR_RETURN(const Table speed, PlanningSpeed(absl::GetFlag(FLAGS_plan)));
      std::fputs(TextOf(speed).c_str(), stdout);
    } else if (table == "runs") {
      LS_RETURN_IF_ERROR(MeasureRuns());
    } else {
      return InvalidArgument("--tables: there is no table '", table, "'; there are plans, runs");
    }
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "How long plans take, and predicted times of steps beside measured ones; see "
                "docs/planning.md.",
       .files = {__FILE__}},
      [](const auto&) { return lockstep::RunBenchmark(); });
}
