// How fast training is, against what the machine could do and against PyTorch on the same work.
//
//   ./bazelw run //tools/bench:training -- --python /path/to/python --torch_peer
//   /path/to/torch_peer.py
//
// --tables fsdp,tp makes these tables only. Each row trains a whole model
// through the trainer, data and all. Model FLOPs are 6 multiply-adds of forward, attention counted
// in full. The limit is measured in the same run. What is compared is measured in turn, several
// rounds, and the best of each counts: a machine's neighbours slow down now the one and now the
// other.

#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "strategies/ddp/ddp.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/lora/lora.h"
#include "strategies/single/single.h"
#include "strategies/tp/tp.h"
#include "tools/bench/fma_limit.h"
#include "tools/bench/torch_peer.h"
#include "tools/bench/training_run.h"

ABSL_FLAG(int, steps, 8, "timed steps of each measurement; two more warm up");
ABSL_FLAG(int, rounds, 3, "measurements of each figure, of which the best counts");
ABSL_FLAG(std::string, python, "python3", "an interpreter with PyTorch, to compare with");
ABSL_FLAG(std::string, torch_peer, "", "the script of the PyTorch side; empty: no comparison");
ABSL_FLAG(std::vector<std::string>, tables, {},
          "of limit, bf16, ranks, fsdp, tp, features, lora; default: all");
ABSL_FLAG(std::string, torch_tensor_parallel, "tools/bench/torch_tensor_parallel.py",
          "the same of tensor parallelism");

namespace lockstep {
namespace {

// One rank of two threads against the machine's limit and against PyTorch.
absl::Status CompareWithTheLimit(const std::optional<TorchPeer>& peer) {
  const int steps = absl::GetFlag(FLAGS_steps);
  std::printf("\none rank, 2 threads, fp32\n%-36s %9s %9s %9s %8s %9s %7s\n", "", "GFLOP/s",
              "limit", "fraction", "outside", "PyTorch", "ratio");
  for (const TrainingWorkload& workload : {ResNetWorkload(), GptWorkload()}) {
    TrainingTiming best;
    double limit = 0, torch = 0;  // 0: not measured
    for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
      limit = std::max(limit, MeasureFmaLimit(2));
      LS_ASSIGN_OR_RETURN(const TrainingTiming timing,
                          MeasureTraining(workload, SingleStrategy(), steps, 1, 2));
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
  const int steps = absl::GetFlag(FLAGS_steps);
  std::printf("\none rank, 2 threads\n%-36s %9s %9s %9s %9s %7s\n", "", "fp32", "bf16", "ratio",
              "PyTorch", "ratio");
  for (const TrainingWorkload& workload : {ResNetWorkload(), GptWorkload()}) {
    double fp32 = 0, bf16 = 0, torch = 0;  // 0: not measured
    for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
      LS_ASSIGN_OR_RETURN(const TrainingTiming full,
                          MeasureTraining(workload, SingleStrategy(), steps, 1, 2));
      LS_ASSIGN_OR_RETURN(
          const TrainingTiming less,
          MeasureTraining(workload, SingleStrategy(), steps, 1, 2, {"precision.compute=bf16"}));
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
  const int steps = absl::GetFlag(FLAGS_steps);
  std::printf("\none thread a rank, the same batch a rank\n%-36s %9s %9s %9s\n", "", "1 rank",
              "2 ranks", "speed-up");
  for (const TrainingWorkload& workload : {ResNetWorkload(), GptWorkload()}) {
    double one = 0, two = 0;
    for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
      LS_ASSIGN_OR_RETURN(const TrainingTiming alone,
                          MeasureTraining(workload, SingleStrategy(), steps, 1, 1));
      LS_ASSIGN_OR_RETURN(const TrainingTiming together,
                          MeasureTraining(workload, DdpStrategy(), steps, 2, 1));
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
  const int steps = absl::GetFlag(FLAGS_steps);
  std::printf("\ntwo ranks of one thread\n%-36s %9s %9s %9s %9s %7s\n", "", "ddp", "fsdp",
              "fraction", "PyTorch", "ratio");
  const TrainingWorkload workload = GptWorkload();
  double ddp = 0, fsdp = 0, torch = 0;  // 0: not measured
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    LS_ASSIGN_OR_RETURN(const TrainingTiming replicas,
                        MeasureTraining(workload, DdpStrategy(), steps, 2, 1));
    LS_ASSIGN_OR_RETURN(const TrainingTiming shards,
                        MeasureTraining(workload, FsdpStrategy(), steps, 2, 1));
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
  const int steps = absl::GetFlag(FLAGS_steps);
  std::printf("\ntwo ranks of one thread, one batch: tp\n%-36s %9s %9s %9s %9s %7s\n", "", "single",
              "tp", "fraction", "PyTorch", "ratio");
  const TrainingWorkload workload = GptWorkload();
  double single = 0;  // 0: not measured
  struct Row {
    std::string name;
    std::vector<std::string> assignments;
    std::string torch_arguments;
    double ours = 0, torch = 0;
  } rows[] = {{"sequence whole", {"mesh.tp=2"}, ""},
              {"sequence split",
               {"mesh.tp=2", "tensor_parallel.sequence_parallel=true"},
               " --sequence_parallel"}};
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    LS_ASSIGN_OR_RETURN(const TrainingTiming alone,
                        MeasureTraining(workload, SingleStrategy(), steps, 1, 2));
    single = std::max(single, alone.gflops);
    for (Row& row : rows) {
      LS_ASSIGN_OR_RETURN(const TrainingTiming split,
                          MeasureTraining(workload, TpStrategy(), steps, 1, 1, row.assignments));
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

// What feature leaves cost: sums over several of them against sums that are not cut.
absl::Status CompareFeatures() {
  const int steps = absl::GetFlag(FLAGS_steps);
  std::printf("\none rank, 2 threads: feature leaves\n%-46s %9s %9s %9s\n", "", "not cut", "cut",
              "fraction");
  struct Row {
    TrainingWorkload workload;
    int heads, features;
  };
  for (const Row& row :
       {Row{GptWorkload(), 6, 2}, Row{GptWorkload(), 12, 4}, Row{WideGptWorkload(), 16, 4}}) {
    for (const char* compute : {"fp32", "bf16"}) {
      const auto measure = [&](int features) {
        return MeasureTraining(
            row.workload, SingleStrategy(), steps, 1, 2,
            {absl::StrCat("precision.compute=", compute), absl::StrCat("model.heads=", row.heads),
             absl::StrCat("cut.features=", features)});
      };
      double whole = 0, cut = 0;
      for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
        LS_ASSIGN_OR_RETURN(const TrainingTiming one, measure(1));
        LS_ASSIGN_OR_RETURN(const TrainingTiming several, measure(row.features));
        whole = std::max(whole, one.gflops);
        cut = std::max(cut, several.gflops);
      }
      const std::string name =
          absl::StrCat(row.workload.name, ", ", compute, ", ", row.features, " leaves");
      std::printf("%-46s %9.1f %9.1f %9.3f\n", name.c_str(), whole, cut, cut / whole);
      std::fflush(stdout);
    }
  }
  return absl::OkStatus();
}

// What adapters on queries and values save, against training all of a wide model.
absl::Status CompareAdapters() {
  const int steps = absl::GetFlag(FLAGS_steps);
  std::printf("\none rank, 2 threads: lora, rank 4 on queries and values\n%-36s %9s %9s %9s %9s\n",
              "", "peak MiB", "of full", "step ms", "speed-up");
  const TrainingWorkload workload = WideGptWorkload();
  TrainingTiming full, lora;
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    LS_ASSIGN_OR_RETURN(const TrainingTiming all,
                        MeasureTraining(workload, SingleStrategy(), steps, 1, 2));
    LS_ASSIGN_OR_RETURN(const TrainingTiming adapters,
                        MeasureTraining(workload, LoraStrategy(), steps, 1, 2,
                                        {"lora.layers=[\"*.qkv.q\", \"*.qkv.v\"]", "lora.rank=4"}));
    if (round == 0 || all.step_seconds < full.step_seconds) full = all;
    if (round == 0 || adapters.step_seconds < lora.step_seconds) lora = adapters;
  }
  std::printf("%s\n", workload.name.c_str());
  for (const auto& [name, timing] :
       {std::pair("full fine-tuning", &full), std::pair("lora", &lora)}) {
    std::printf("  %-34s %9.1f %9.3f %9.1f %9.2f\n", name,
                static_cast<double>(timing->peak_bytes) / (1 << 20),
                static_cast<double>(timing->peak_bytes) / static_cast<double>(full.peak_bytes),
                1e3 * timing->step_seconds, full.step_seconds / timing->step_seconds);
  }
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::StatusOr<int> RunBenchmark() {
  const auto peer_at = [](const std::string& script) {
    std::string reason;
    auto peer = FindTorchPeer(absl::GetFlag(FLAGS_python), script, &reason);
    if (!peer) std::printf("PyTorch is left out: %s\n", reason.c_str());
    return peer;
  };
  const std::optional<TorchPeer> peer = peer_at(absl::GetFlag(FLAGS_torch_peer));
  const std::vector<std::pair<std::string, std::function<absl::Status()>>> tables = {
      {"limit", [&] { return CompareWithTheLimit(peer); }},
      {"bf16", [&] { return CompareBf16(peer); }},
      {"ranks", [] { return CompareRanks(); }},
      {"fsdp", [&] { return CompareSharding(peer); }},
      {"tp",
       [&] { return CompareTensorParallel(peer_at(absl::GetFlag(FLAGS_torch_tensor_parallel))); }},
      {"features", [] { return CompareFeatures(); }},
      {"lora", [] { return CompareAdapters(); }}};
  const std::vector<std::string> wanted = absl::GetFlag(FLAGS_tables);
  for (const std::string& name : wanted) {
    const auto named = [&name](const auto& table) { return table.first == name; };
    if (std::none_of(tables.begin(), tables.end(), named)) {
      return absl::InvalidArgumentError("--tables: there is no '" + name +
                                        "', only limit, bf16, ranks, fsdp, tp, features and lora");
    }
  }
  for (const auto& [name, compare] : tables) {
    const bool is_wanted =
        wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
    if (is_wanted) LS_RETURN_IF_ERROR(compare());
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(argc, argv,
                              {.usage = "Times training, against what the machine could do and "
                                        "against PyTorch; see docs/benchmarks.md.",
                               .files = {__FILE__}},
                              [](const auto&) { return lockstep::RunBenchmark(); });
}
