#include "tools/bench/foresight/machine_runs.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "tools/bench/foresight/timed_run.h"
#include "tools/experiment/paths.h"

namespace lockstep {
namespace {

constexpr double kGoalMean = 0.06, kGoalLargest = 0.15, kGoalRegret = 0.02;

enum class Kind { kText, kExperts, kImages };

struct Model {
  std::string name, config;
  Kind kind = Kind::kText;
};
const std::vector<Model>& Models() {
  static const std::vector<Model> models = {
      {"GPT 3 x 224",
       "name = 'gpt'\n[model]\nkind = 'transformer'\nlayers = 3\nheads = 4\nwidth = 224\n"
       "[data]\nkind = 'markov'\nvocabulary = 150\norder = 1\ncontext = 64\n"
       "[batch]\nsize = 24\n[cut]\nshards = 2\nmicro_batches = 2\n"
       "[optimizer]\nkind = 'adamw'\n[schedule]\nlearning_rate = 3e-4\n"},
      {"GPT 2 x 448",
       "name = 'gpt'\n[model]\nkind = 'transformer'\nlayers = 2\nheads = 8\nwidth = 448\n"
       "[data]\nkind = 'markov'\nvocabulary = 90\norder = 1\ncontext = 112\n"
       "[batch]\nsize = 8\n[cut]\nshards = 2\nmicro_batches = 2\n"
       "[optimizer]\nkind = 'adamw'\n[schedule]\nlearning_rate = 3e-4\n"},
      {"ResNet-18 x 18",
       "name = 'resnet'\n[model]\nkind = 'resnet'\ndepth = 18\nstem = 'cifar'\nwidth = 18\n"
       "[data]\nkind = 'shapes'\n[batch]\nsize = 40\n[cut]\nshards = 2\nmicro_batches = 2\n"
       "[optimizer]\nkind = 'sgd'\nmomentum = 0.9\n[schedule]\nlearning_rate = 0.01\n",
       Kind::kImages},
      // Each token has all experts: other loads are not known before a run.
      {"Llama 2 x 192, experts",
       "name = 'mixture'\n[model]\nkind = 'llama'\nlayers = 2\nheads = 4\nkey_heads = 2\n"
       "width = 192\n[model.experts]\ncount = 2\ntop_k = 2\nwidth = 320\n"
       "[data]\nkind = 'markov'\nvocabulary = 120\norder = 1\ncontext = 64\n"
       "[batch]\nsize = 24\n[cut]\nshards = 2\nmicro_batches = 2\n"
       "[optimizer]\nkind = 'adamw'\n[schedule]\nlearning_rate = 3e-4\n",
       Kind::kExperts},
  };
  return models;
}

struct Preset {
  std::string name;
  int ranks;
  std::vector<std::string> assignments = {};
  bool (*can_run)(Kind) = [](Kind) { return true; };
};
bool HasTokens(Kind kind) { return kind != Kind::kImages; }
bool HasExperts(Kind kind) { return kind == Kind::kExperts; }
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
      {"cp", 2, {"mesh.dp=1", "mesh.cp=2"}, HasTokens},
      {"ep", 2, {"mesh.dp=2", "mesh.ep=2"}, HasExperts},
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
  TimedRun best = {};

  std::string Ranks() const {
    return absl::StrCat(preset->ranks, preset->ranks == 1 ? " rank" : is_mpi ? " MPI" : " threads");
  }
};

std::vector<Run> AllRuns() {
  std::vector<Run> runs;
  const bool has_mpi = !FindOnPath("mpirun").empty();
  for (const Model& model : Models()) {
    for (const Preset& preset : Presets()) {
      if (!preset.can_run(model.kind)) continue;
      runs.push_back({.model = &model, .preset = &preset});
      if (has_mpi && preset.ranks > 1) {
        runs.push_back({.model = &model, .preset = &preset, .is_mpi = true});
      }
    }
  }
  return runs;
}

absl::Status Measure(const RunRounds& rounds, Run& run) {
  RunToTime program;
  if (run.is_mpi) {
    program.launcher = {FindOnPath("mpirun"), "-n", absl::StrCat(run.preset->ranks),
                        "--allow-run-as-root"};
  }
  program.program = absl::StrCat(rounds.strategies, "/", run.preset->name, "/main");
  program.config = run.model->config;
  program.assignments = run.preset->assignments;
  program.assignments.push_back(absl::StrCat("train.steps=", rounds.steps));
  LS_ASSIGN_OR_RETURN(const TimedRun timed, TimeRun(program));
  if (run.best.measured == 0 || timed.measured < run.best.measured) run.best = timed;
  return absl::OkStatus();
}

// The groups are those of MachineRuns.
struct Regret {
  double mean = 0, largest = 0;
};

Regret RegretOfGroups(const std::vector<Run>& runs) {
  struct Group {
    double best = HUGE_VAL, promised = HUGE_VAL, of_promised = 0;
  };
  std::map<std::pair<std::string, bool>, Group> groups;
  for (const Run& run : runs) {
    const TimedRun& timed = run.best;
    // Adapters do another work.
    if (!timed.skipped.empty() || run.preset->ranks == 1 || run.preset->name == "lora") continue;
    Group& group = groups[{run.model->name, run.is_mpi}];
    group.best = std::min(group.best, timed.measured);
    if (timed.predicted >= group.promised) continue;
    group.promised = timed.predicted;
    group.of_promised = timed.measured;
  }
  Regret regret;
  for (const auto& [key, group] : groups) {
    const double of_group = group.of_promised / group.best - 1;
    regret.mean += of_group / static_cast<double>(groups.size());
    regret.largest = std::max(regret.largest, of_group);
  }
  return regret;
}

}  // namespace

absl::StatusOr<Table> MachineRuns(const RunRounds& rounds) {
  std::vector<Run> runs = AllRuns();
  for (int round = 0; round < rounds.count; ++round) {
    for (size_t i = 0; i < runs.size(); ++i) {
      if (!runs[i].best.skipped.empty()) continue;
      std::fprintf(stderr, "round %d of %d, run %d of %d: %s, %s\n", round + 1, rounds.count,
                   static_cast<int>(i) + 1, static_cast<int>(runs.size()),
                   runs[i].model->name.c_str(), runs[i].preset->name.c_str());
      LS_RETURN_IF_ERROR(Measure(rounds, runs[i]));
    }
  }
  Table table = {.title = "runs on this machine",
                 .columns = {{"model", Table::Align::kLeft},
                             {"preset", Table::Align::kLeft},
                             {"ranks", Table::Align::kLeft},
                             {"predicted"},
                             {"measured"},
                             {"error"},
                             {"memory"},
                             {"bytes"}}};
  double sum = 0, largest = 0, memory = 0, bytes = 0;
  int count = 0;
  for (const Run& run : runs) {
    const TimedRun& timed = run.best;
    if (!timed.skipped.empty()) {
      table.Add({run.model->name, run.preset->name, run.Ranks(), timed.skipped});
      continue;
    }
    table.Add({run.model->name, run.preset->name, run.Ranks(), FormatDuration(timed.predicted),
               FormatDuration(timed.measured), absl::StrFormat("%+.1f %%", 100 * timed.error()),
               absl::StrFormat("%.3f %%", 100 * timed.memory_off),
               absl::StrFormat("%.3f %%", 100 * timed.bytes_off)});
    sum += std::abs(timed.error());
    largest = std::max(largest, std::abs(timed.error()));
    ++count;
    memory = std::max(memory, timed.memory_off);
    bytes = std::max(bytes, timed.bytes_off);
  }
  const Regret regret = RegretOfGroups(runs);
  table.title = absl::StrFormat(
      "%d runs on this machine: mean error %.1f %% (goal %.0f %%), largest %.1f %% (goal %.0f %%); "
      "regret of groups: mean %.1f %% (goal %.0f %%), largest %.1f %%; memory off by at most "
      "%.3f %%, bytes by %.3f %%",
      count, 100 * sum / std::max(1, count), 100 * kGoalMean, 100 * largest, 100 * kGoalLargest,
      100 * regret.mean, 100 * kGoalRegret, 100 * regret.largest, 100 * memory, 100 * bytes);
  return table;
}

}  // namespace lockstep
