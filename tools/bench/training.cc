// How fast training is, against what the machine could do and against PyTorch on the same work.
//
//   ./bazelw run //tools/bench:training -- --python /path/to/python --torch_peer
//   /path/to/torch_peer.py
//
// Each row trains a whole model through the trainer, data and all. Model FLOPs are 6 multiply-adds
// of forward, attention counted in full. The limit is measured in the same run. What is compared is
// measured in turn, several rounds, and the best of each counts: a machine's neighbours slow down
// now the one and now the other.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/train/run.h"
#include "core/train/trainer.h"
#include "models/models.h"
#include "strategies/ddp/ddp.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/single/single.h"
#include "strategies/tp/tp.h"
#include "tools/bench/fma_limit.h"
#include "tools/bench/torch_peer.h"

ABSL_FLAG(int, steps, 8, "timed steps of each measurement; two more warm up");
ABSL_FLAG(int, rounds, 3, "measurements of each figure, of which the best counts");
ABSL_FLAG(std::string, python, "python3", "an interpreter with PyTorch, to compare with");
ABSL_FLAG(std::string, torch_peer, "", "the script of the PyTorch side; empty: no comparison");
ABSL_FLAG(std::string, torch_tensor_parallel, "tools/bench/torch_tensor_parallel.py",
          "the same of tensor parallelism");

namespace lockstep {
namespace {

constexpr int kWarmUpSteps = 2;  // the trainer leaves them out of its times

struct Workload {
  std::string name;
  int64_t batch;       // of each rank
  std::string config;  // model and data
  std::string torch_arguments;
};

std::vector<Workload> Workloads() {
  return {
      {.name = "ResNet-18, 32x32, batch 64",
       .batch = 64,
       .config = "[model]\nkind = 'resnet'\n[data]\nkind = 'shapes'\n"
                 "[optimizer]\nkind = 'sgd'\nmomentum = 0.9\n[schedule]\nlearning_rate = 0.01\n",
       .torch_arguments = "resnet18 --batch 64"},
      {.name = "GPT 6 x 384, context 256, batch 16",
       .batch = 16,
       .config = "[model]\nkind = 'transformer'\nlayers = 6\nheads = 6\nwidth = 384\n"
                 "[data]\nkind = 'markov'\nvocabulary = 65\norder = 1\ncontext = 256\n"
                 "[optimizer]\nkind = 'adamw'\n[schedule]\nlearning_rate = 0.0003\n",
       .torch_arguments = "gpt --layers 6 --heads 6 --width 384 --context 256 --vocab 65 "
                          "--batch 16"}};
}

struct Timing {
  double gflops = 0;           // model GFLOP/s over all ranks
  double outside_kernels = 0;  // fraction of a step
};

// `shards` data-parallel ranks, each with a batch of its own; `assignments` are laid over all else.
absl::StatusOr<Timing> Measure(const Workload& workload, const StrategyDefinition& strategy,
                               int shards, int threads,
                               const std::vector<std::string>& assignments = {}) {
  const std::string out =
      (std::filesystem::temp_directory_path() / "lockstep_bench_training").string();
  std::filesystem::remove_all(out);
  std::filesystem::create_directories(out);
  const std::string config_path = out + "/bench.toml";
  std::FILE* file = std::fopen(config_path.c_str(), "w");
  if (file == nullptr) return absl::UnavailableError("cannot write " + config_path);
  std::fputs(workload.config.c_str(), file);
  std::fclose(file);

  CommandLine command_line;
  command_line.configs = {config_path};
  command_line.out = out + "/run";
  command_line.assignments = {
      absl::StrCat("train.steps=", absl::GetFlag(FLAGS_steps) + kWarmUpSteps),
      absl::StrCat("batch.size=", workload.batch * shards), absl::StrCat("mesh.dp=", shards),
      absl::StrCat("run.threads=", threads), "validation.batches=1"};
  command_line.assignments.insert(command_line.assignments.end(), assignments.begin(),
                                  assignments.end());
  LS_ASSIGN_OR_RETURN(const Run run, PrepareRun(command_line, strategy, MakeModel));
  LS_ASSIGN_OR_RETURN(const std::vector<RankReport> reports, TrainRanks(run));
  const double macs =
      static_cast<double>(MakeModel(run.config, *run.dataset)->ForwardMacsPerSample());
  double step = 0;
  for (const RankReport& report : reports) step = std::max(step, report.median_step_seconds);
  const RankReport& first = reports.front();
  return Timing{.gflops = 6 * macs * static_cast<double>(run.settings.batch.size) / step * 1e-9,
                .outside_kernels = 1 - static_cast<double>(first.kernel_nanos) /
                                           static_cast<double>(first.times.total)};
}

// The end of a row: PyTorch's figure, 0 if there is none, and what ours is of it.
void PrintPeer(double ours, double torch) {
  if (torch > 0) {
    std::printf(" %9.1f %7.2f\n", torch, ours / torch);
  } else {
    std::printf(" %9s %7s\n", "-", "-");
  }
  std::fflush(stdout);
}

// One rank of two threads against the machine's limit and against PyTorch.
absl::Status CompareWithTheLimit(const std::optional<TorchPeer>& peer) {
  std::printf("\none rank, 2 threads, fp32\n%-36s %9s %9s %9s %8s %9s %7s\n", "", "GFLOP/s",
              "limit", "fraction", "outside", "PyTorch", "ratio");
  for (const Workload& workload : Workloads()) {
    Timing best;
    double limit = 0, torch = 0;  // 0: not measured
    for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
      limit = std::max(limit, MeasureFmaLimit(2));
      LS_ASSIGN_OR_RETURN(const Timing timing, Measure(workload, SingleStrategy(), 1, 2));
      if (timing.gflops > best.gflops) best = timing;
      if (!peer) continue;
      const auto theirs = RunTorchPeer(*peer, workload.torch_arguments + " --threads 2");
      torch = std::max(torch, theirs.value_or(0));
    }
    std::printf("%-36s %9.1f %9.1f %9.3f %6.2f %%", workload.name.c_str(), best.gflops, limit,
                best.gflops / limit, 100 * best.outside_kernels);
    PrintPeer(best.gflops, torch);
  }
  return absl::OkStatus();
}

// bf16 against fp32, and against PyTorch's autocast.
absl::Status CompareBf16(const std::optional<TorchPeer>& peer) {
  std::printf("\none rank, 2 threads\n%-36s %9s %9s %9s %9s %7s\n", "", "fp32", "bf16", "ratio",
              "PyTorch", "ratio");
  for (const Workload& workload : Workloads()) {
    double fp32 = 0, bf16 = 0, torch = 0;  // 0: not measured
    for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
      LS_ASSIGN_OR_RETURN(const Timing full, Measure(workload, SingleStrategy(), 1, 2));
      LS_ASSIGN_OR_RETURN(const Timing less,
                          Measure(workload, SingleStrategy(), 1, 2, {"precision.compute=bf16"}));
      fp32 = std::max(fp32, full.gflops);
      bf16 = std::max(bf16, less.gflops);
      if (!peer) continue;
      const auto theirs = RunTorchPeer(*peer, workload.torch_arguments + " --threads 2 --amp bf16");
      torch = std::max(torch, theirs.value_or(0));
    }
    std::printf("%-36s %9.1f %9.1f %9.2f", workload.name.c_str(), fp32, bf16, bf16 / fp32);
    PrintPeer(bf16, torch);
  }
  return absl::OkStatus();
}

// Two ranks of one thread against one.
absl::Status CompareRanks() {
  std::printf("\none thread a rank, the same batch a rank\n%-36s %9s %9s %9s\n", "", "1 rank",
              "2 ranks", "speed-up");
  for (const Workload& workload : Workloads()) {
    double one = 0, two = 0;
    for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
      LS_ASSIGN_OR_RETURN(const Timing alone, Measure(workload, SingleStrategy(), 1, 1));
      LS_ASSIGN_OR_RETURN(const Timing together, Measure(workload, DdpStrategy(), 2, 1));
      one = std::max(one, alone.gflops);
      two = std::max(two, together.gflops);
    }
    std::printf("%-36s %9.1f %9.1f %9.2f\n", workload.name.c_str(), one, two, two / one);
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

// What shards cost: fsdp against ddp, and against PyTorch's over gloo.
absl::Status CompareSharding(const std::optional<TorchPeer>& peer) {
  std::printf("\ntwo ranks of one thread\n%-36s %9s %9s %9s %9s %7s\n", "", "ddp", "fsdp",
              "fraction", "PyTorch", "ratio");
  const Workload workload = Workloads().back();
  double ddp = 0, fsdp = 0, torch = 0;  // 0: not measured
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    LS_ASSIGN_OR_RETURN(const Timing replicas, Measure(workload, DdpStrategy(), 2, 1));
    LS_ASSIGN_OR_RETURN(const Timing shards, Measure(workload, FsdpStrategy(), 2, 1));
    ddp = std::max(ddp, replicas.gflops);
    fsdp = std::max(fsdp, shards.gflops);
    if (!peer) continue;
    const auto theirs =
        RunTorchPeer(*peer, workload.torch_arguments + " --strategy fsdp --threads 1", 2);
    torch = std::max(torch, theirs.value_or(0));
  }
  std::printf("%-36s %9.1f %9.1f %9.3f", workload.name.c_str(), ddp, fsdp, fsdp / ddp);
  PrintPeer(fsdp, torch);
  return absl::OkStatus();
}

// What splitting the layers costs: two ranks of one thread against one of two threads, with the
// sequence whole and split, and against PyTorch's over gloo.
absl::Status CompareTensorParallel(const std::optional<TorchPeer>& peer) {
  std::printf("\ntwo ranks of one thread, one batch: tp\n%-36s %9s %9s %9s %9s %7s\n", "", "single",
              "tp", "fraction", "PyTorch", "ratio");
  const Workload workload = Workloads().back();
  double single = 0;  // 0: not measured
  struct Row {
    std::string name;
    std::vector<std::string> assignments;
    std::string torch_arguments;
    double ours = 0, torch = 0;
  } rows[] = {
      {"sequence whole", {"mesh.tp=2"}, ""},
      {"sequence split", {"mesh.tp=2", "tp.sequence_parallel=true"}, " --sequence_parallel"}};
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    LS_ASSIGN_OR_RETURN(const Timing alone, Measure(workload, SingleStrategy(), 1, 2));
    single = std::max(single, alone.gflops);
    for (Row& row : rows) {
      LS_ASSIGN_OR_RETURN(const Timing split,
                          Measure(workload, TpStrategy(), 1, 1, row.assignments));
      row.ours = std::max(row.ours, split.gflops);
      if (!peer) continue;
      // Without the name of the model: the script knows one.
      const std::string sizes = workload.torch_arguments.substr(std::string("gpt ").size());
      const auto theirs = RunTorchPeer(*peer, sizes + " --threads 1" + row.torch_arguments, 2);
      row.torch = std::max(row.torch, theirs.value_or(0));
    }
  }
  std::printf("%s\n", workload.name.c_str());
  for (const Row& row : rows) {
    std::printf("  %-34s %9.1f %9.1f %9.3f", row.name.c_str(), single, row.ours, row.ours / single);
    PrintPeer(row.ours, row.torch);
  }
  return absl::OkStatus();
}

absl::Status RunBenchmark() {
  std::string reason;
  const std::optional<TorchPeer> peer =
      FindTorchPeer(absl::GetFlag(FLAGS_python), absl::GetFlag(FLAGS_torch_peer), &reason);
  if (!peer) std::printf("PyTorch is left out: %s\n", reason.c_str());
  LS_RETURN_IF_ERROR(CompareWithTheLimit(peer));
  LS_RETURN_IF_ERROR(CompareBf16(peer));
  LS_RETURN_IF_ERROR(CompareRanks());
  LS_RETURN_IF_ERROR(CompareSharding(peer));
  const std::optional<TorchPeer> tensor_peer = FindTorchPeer(
      absl::GetFlag(FLAGS_python), absl::GetFlag(FLAGS_torch_tensor_parallel), &reason);
  if (!tensor_peer) std::printf("PyTorch's tensor parallel is left out: %s\n", reason.c_str());
  return CompareTensorParallel(tensor_peer);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = lockstep::RunBenchmark();
  if (status.ok()) return 0;
  lockstep::PrintError(status);
  return 1;
}
