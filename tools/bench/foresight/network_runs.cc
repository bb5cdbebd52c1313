#include "tools/bench/foresight/network_runs.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/config/command_line.h"
#include "core/run/strategy/strategy.h"
#include "foresight/cluster.h"
#include "foresight/cluster_comm_time.h"
#include "foresight/dialect.h"
#include "foresight/machine_file.h"
#include "foresight/network_time.h"
#include "foresight/recorded_run.h"
#include "foresight/step_time.h"
#include "models/models.h"
#include "strategies/ddp/ddp.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/gpipe/gpipe.h"
#include "strategies/tp/tp.h"
#include "strategies/zero1/zero1.h"
#include "tools/bench/foresight/timed_run.h"
#include "tools/bench/foresight/two_hosts.h"
#include "tools/experiment/paths.h"

namespace lockstep {
namespace {

constexpr double kGoalMean = 0.10, kGoalRatio = 1.2;

// The model of all runs.
constexpr int64_t kLayers = 4, kHeads = 6, kWidth = 384, kContext = 256, kVocabulary = 65;
constexpr int64_t kBatch = 8;  // samples of a step, on both hosts together

// A preset, and PyTorch's side of it.
struct Preset {
  StrategyDefinition strategy;
  std::vector<std::string> assignments;
  std::string peer, peer_arguments;
};
const std::vector<Preset>& Presets() {
  static const std::vector<Preset> presets = {
      {DdpStrategy(),
       {"mesh.dp=2", "cut.shards=2"},
       "torch_data_parallel.py",
       "--strategy ddp --batch 4"},
      {Zero1Strategy(),
       {"mesh.dp=2", "cut.shards=2"},
       "torch_data_parallel.py",
       "--strategy zero1 --batch 4"},
      {FsdpStrategy(),
       {"mesh.dp=2", "cut.shards=2"},
       "torch_data_parallel.py",
       "--strategy fsdp --batch 4"},
      {TpStrategy(),
       {"mesh.dp=1", "mesh.tp=2", "cut.features=2"},
       "torch_tensor_parallel.py",
       "--batch 8"},
      {GPipeStrategy(),
       {"mesh.dp=1", "mesh.pp=2", "cut.micro_batches=4", "recompute.micro_batches=never"},
       "torch_pipeline.py",
       "--batch 8 --micro_batches 4"},
  };
  return presets;
}

struct Rate {
  const char* name;  // as tc(8) has it
  double bytes_per_second;
};
constexpr Rate kRates[] = {{"1gbit", 1e9 / 8}, {"10gbit", 10e9 / 8}};

struct Run {
  const Rate* rate;
  const Preset* preset;
  double predicted = 0;  // seconds of a step
  TimedRun best = {};
  double torch_seconds = 0;  // of a step; 0: not measured

  double error() const { return predicted / best.measured - 1; }
};

std::string Config() {
  return absl::StrCat(
      "name = 'network'\n[model]\nkind = 'transformer'\nlayers = ", kLayers, "\nheads = ", kHeads,
      "\nwidth = ", kWidth, "\n[data]\nkind = 'markov'\nvocabulary = ", kVocabulary,
      "\norder = 1\ncontext = ", kContext, "\n[batch]\nsize = ", kBatch,
      "\n[optimizer]\nkind = 'adamw'\n[schedule]\nlearning_rate = 3e-4\n[run]\nthreads = 1\n");
}

// Operations of a step as PyTorch's scripts count them.
double Operations() {
  constexpr double kMacs = static_cast<double>(
      kLayers * (12 * kWidth * kWidth + 2 * kContext * kWidth) + kVocabulary * kWidth);
  return 6 * kMacs * static_cast<double>(kBatch * kContext);
}

// A cluster of two hosts, each a core of `machine` while the other computes too.
Cluster TwoHostsOf(Cluster machine, const Rate& rate) {
  machine.name = absl::StrCat("two hosts, ", rate.name);
  machine.node.devices = 1;
  machine.network.nodes = 2;
  machine.network.bandwidth = rate.bytes_per_second;
  machine.network.latency = 50e-6;
  // TCP's payload of an Ethernet frame, with IP's header and TCP's, which has timestamps; tc counts
  // the frame's header, too.
  machine.fitted["adapter_efficiency"] = (1500. - 20 - 32) / (1500 + 14);
  std::erase_if(machine.measured.kernels, [](const MeasuredKernel& kernel) {
    return kernel.threads != 1 || kernel.ranks == 1;
  });
  for (MeasuredKernel& kernel : machine.measured.kernels) kernel.ranks = 1;
  return machine;
}

// The configuration of a run in `folder`, and what is laid over it.
CommandLine CommandLineOf(const Preset& preset, const std::string& folder) {
  CommandLine command_line;
  command_line.configs = {folder + "/model.toml"};
  command_line.assignments = preset.assignments;
  command_line.assignments.push_back("train.steps=2");
  return command_line;
}

absl::Status Predict(const Cluster& machine, Run& run) {
  LS_ASSIGN_OR_RETURN(const TemporaryDirectory folder, TemporaryDirectory::Create());
  const CommandLine command_line = CommandLineOf(*run.preset, folder.path());
  LS_RETURN_IF_ERROR(WriteFileAtomically(command_line.configs[0], Config()));
  LS_ASSIGN_OR_RETURN(RecordedRun recorded,
                      RecordRun(command_line, run.preset->strategy, MakeModel));
  const Cluster hosts = TwoHostsOf(machine, *run.rate);
  LS_RETURN_IF_ERROR(NetworkTime::Check(hosts));
  LS_ASSIGN_OR_RETURN(const Dialect dialect, Dialect::Lockstep());
  LS_ASSIGN_OR_RETURN(
      const StepTime step,
      StepTime::Create(std::make_shared<const RecordedRun>(std::move(recorded)), dialect, hosts));
  LS_ASSIGN_OR_RETURN(const StepEstimate estimate,
                      step.Estimate(dialect, hosts, ClusterCommTime(hosts)));
  run.predicted = estimate.seconds;
  return absl::OkStatus();
}

absl::Status Measure(const NetworkRounds& rounds, const TwoHosts& hosts, Run& run) {
  RunToTime program;
  program.launcher = hosts.Mpirun();
  program.program = absl::StrCat(rounds.strategies, "/", run.preset->strategy.name, "/main");
  program.config = Config();
  program.assignments = run.preset->assignments;
  program.assignments.push_back(absl::StrCat("train.steps=", rounds.steps));
  LS_ASSIGN_OR_RETURN(const TimedRun timed, TimeRun(program));
  if (run.best.measured == 0 || timed.measured < run.best.measured) run.best = timed;
  if (rounds.python.empty()) return absl::OkStatus();
  std::vector<std::string> command = hosts.Torchrun();
  command.insert(command.end(), {rounds.python, absl::StrCat(rounds.peers, "/", run.preset->peer)});
  LS_ASSIGN_OR_RETURN(
      const double gflops,
      RunTorchCommand(
          std::move(command),
          absl::StrCat(run.preset->peer_arguments, " --layers ", kLayers, " --heads ", kHeads,
                       " --width ", kWidth, " --context ", kContext, " --vocab ", kVocabulary,
                       " --threads 1 --steps ", rounds.steps)));
  if (gflops == 0) return absl::OkStatus();
  const double seconds = 1e-9 * Operations() / gflops;
  run.torch_seconds = run.torch_seconds == 0 ? seconds : std::min(run.torch_seconds, seconds);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Table> NetworkRuns(const NetworkRounds& rounds) {
  LS_ASSIGN_OR_RETURN(const std::string file, MachineFile());
  const absl::StatusOr<Cluster> machine = ReadCluster(file);
  LS_RETURN_IF_ERROR(Annotate(machine.status(),
                              "this machine's description, which ./bazelw run "
                              "//tools/plan:calibrate makes"));
  std::vector<Run> runs;
  for (const Rate& rate : kRates) {
    for (const Preset& preset : Presets()) runs.push_back({.rate = &rate, .preset = &preset});
  }
  for (Run& run : runs) LS_RETURN_IF_ERROR(Predict(*machine, run));
  for (int round = 0; round < rounds.count; ++round) {
    for (Run& run : runs) {
      std::fprintf(stderr, "round %d of %d: %s, %s\n", round + 1, rounds.count, run.rate->name,
                   run.preset->strategy.name.c_str());
      LS_ASSIGN_OR_RETURN(const TwoHosts hosts, TwoHosts::Create(rounds.script, run.rate->name));
      LS_RETURN_IF_ERROR(Measure(rounds, hosts, run));
    }
  }
  Table table = {.columns = {{"network", Table::Align::kLeft},
                             {"preset", Table::Align::kLeft},
                             {"predicted"},
                             {"measured"},
                             {"error"},
                             {"PyTorch"},
                             {"ratio"}}};
  double sum = 0, least_ratio = HUGE_VAL;
  int count = 0;
  for (const Run& run : runs) {
    const TimedRun& timed = run.best;
    if (timed.measured == 0) {
      table.Add({run.rate->name, run.preset->strategy.name, timed.skipped});
      continue;
    }
    sum += std::abs(run.error());
    ++count;
    std::vector<std::string> cells = {run.rate->name, run.preset->strategy.name,
                                      FormatDuration(run.predicted), FormatDuration(timed.measured),
                                      absl::StrFormat("%+.1f %%", 100 * run.error())};
    if (run.torch_seconds > 0) {
      const double ratio = run.torch_seconds / timed.measured;
      least_ratio = std::min(least_ratio, ratio);
      cells.push_back(FormatDuration(run.torch_seconds));
      cells.push_back(absl::StrFormat("%.2f", ratio));
    }
    table.Add(std::move(cells));
  }
  table.title = absl::StrFormat("two hosts: mean error %.1f %% (goal %.0f %%)",
                                100 * sum / std::max(1, count), 100 * kGoalMean);
  if (least_ratio < HUGE_VAL) {
    absl::StrAppendFormat(&table.title, "; at least %.2f times as fast as PyTorch (goal %.1f)",
                          least_ratio, kGoalRatio);
  }
  return table;
}

}  // namespace lockstep
