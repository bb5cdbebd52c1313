// How fast training is, against what the machine could do and against PyTorch on the same work.
//
//   ./bazelw run //tools/bench:training -- --python /path/to/python --torch_peer
//   /path/to/torch_peer.py
//
// --tables fsdp,tp makes these tables only. Each row trains a whole model
// through the trainer, data and all. Model FLOPs are 6 multiply-adds of forward, attention counted
// in full. The limit is measured in the same run. What is compared is measured in turn, several
// rounds, and the best of each counts.

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
#include "tools/bench/training_run.h"

ABSL_FLAG(int, steps, 8, "timed steps of each measurement; two more warm up");
ABSL_FLAG(int, rounds, 3, "measurements of each figure, of which the best counts");
ABSL_FLAG(std::string, python, "python3", "an interpreter with PyTorch, to compare with");
ABSL_FLAG(std::string, torch_peer, "", "the script of the PyTorch side; empty: no comparison");
ABSL_FLAG(std::vector<std::string>, tables, {},
          "of limit, bf16, ranks, fsdp, tp, cuts, lora; default: all");
ABSL_FLAG(std::string, torch_tensor_parallel, "tools/bench/torch_tensor_parallel.py",
          "the same of tensor parallelism");

namespace lockstep {
namespace {

// The rounds that the flags ask for.
Rounds RoundsWith(const std::optional<TorchPeer>& peer) {
  return {.count = absl::GetFlag(FLAGS_rounds), .steps = absl::GetFlag(FLAGS_steps), .peer = peer};
}

// One rank of two threads against the machine's limit and against PyTorch.
absl::Status CompareWithTheLimit(const std::optional<TorchPeer>& peer) {
  std::printf("\none rank, 2 threads, fp32\n%-36s %9s %9s %9s %8s %9s %7s\n", "", "GFLOP/s",
              "limit", "fraction", "outside", "PyTorch", "ratio");
  for (const TrainingWorkload& workload : {ResNetWorkload(), GptWorkload()}) {
    double limit = 0;
    Rounds rounds = RoundsWith(peer);
    rounds.before_each = [&limit] { limit = std::max(limit, MeasureFmaLimit(2)); };
    Contender ours = {.strategy = SingleStrategy(),
                      .torch_arguments = workload.torch_arguments + " --threads 2"};
    LS_RETURN_IF_ERROR(MeasureInTurn(workload, rounds, absl::MakeSpan(&ours, 1)));
    std::printf("%-36s %9.1f %9.1f %9.3f %6.2f %%", workload.name.c_str(), ours.best.gflops, limit,
                ours.best.gflops / limit, 100 * ours.best.outside_kernels);
    PrintPeer(ours.best.gflops, ours.torch_gflops);
  }
  return absl::OkStatus();
}

// bf16 against fp32, and against PyTorch's autocast.
absl::Status CompareBf16(const std::optional<TorchPeer>& peer) {
  std::printf("\none rank, 2 threads\n%-36s %9s %9s %9s %9s %7s\n", "", "fp32", "bf16", "ratio",
              "PyTorch", "ratio");
  for (const TrainingWorkload& workload : {ResNetWorkload(), GptWorkload()}) {
    Contender both[] = {{.strategy = SingleStrategy()},
                        {.strategy = SingleStrategy(),
                         .assignments = {"precision.compute=bf16"},
                         .torch_arguments = workload.torch_arguments + " --threads 2 --amp bf16"}};
    LS_RETURN_IF_ERROR(MeasureInTurn(workload, RoundsWith(peer), absl::MakeSpan(both)));
    const auto& [fp32, bf16] = both;
    std::printf("%-36s %9.1f %9.1f %9.2f", workload.name.c_str(), fp32.best.gflops,
                bf16.best.gflops, bf16.best.gflops / fp32.best.gflops);
    PrintPeer(bf16.best.gflops, bf16.torch_gflops);
  }
  return absl::OkStatus();
}

// Two ranks of one thread against one.
absl::Status CompareRanks() {
  std::printf("\none thread a rank, the same batch a rank\n%-36s %9s %9s %9s\n", "", "1 rank",
              "2 ranks", "speed-up");
  for (const TrainingWorkload& workload : {ResNetWorkload(), GptWorkload()}) {
    Contender both[] = {{.strategy = SingleStrategy(), .threads = 1},
                        {.strategy = DdpStrategy(), .shards = 2, .threads = 1}};
    LS_RETURN_IF_ERROR(MeasureInTurn(workload, RoundsWith({}), absl::MakeSpan(both)));
    const double one = both[0].best.gflops, two = both[1].best.gflops;
    std::printf("%-36s %9.1f %9.1f %9.2f\n", workload.name.c_str(), one, two, two / one);
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

// What shards cost: fsdp against ddp, and against PyTorch's over gloo.
absl::Status CompareSharding(const std::optional<TorchPeer>& peer) {
  std::printf("\ntwo ranks of one thread\n%-36s %9s %9s %9s %9s %7s\n", "", "ddp", "fsdp",
              "fraction", "PyTorch", "ratio");
  const TrainingWorkload workload = GptWorkload();
  Contender both[] = {{.strategy = DdpStrategy(), .shards = 2, .threads = 1},
                      {.strategy = FsdpStrategy(),
                       .shards = 2,
                       .threads = 1,
                       .torch_arguments = workload.torch_arguments + " --strategy fsdp --threads 1",
                       .torch_ranks = 2}};
  LS_RETURN_IF_ERROR(MeasureInTurn(workload, RoundsWith(peer), absl::MakeSpan(both)));
  const double ddp = both[0].best.gflops, fsdp = both[1].best.gflops;
  std::printf("%-36s %9.1f %9.1f %9.3f", workload.name.c_str(), ddp, fsdp, fsdp / ddp);
  PrintPeer(fsdp, both[1].torch_gflops);
  return absl::OkStatus();
}

// What splitting the layers costs: two ranks of one thread against one of two threads, with the
// sequence whole and split, and against PyTorch's over gloo.
absl::Status CompareTensorParallel(const std::optional<TorchPeer>& peer) {
  std::printf("\ntwo ranks of one thread, one batch: tp\n%-36s %9s %9s %9s %9s %7s\n", "", "single",
              "tp", "fraction", "PyTorch", "ratio");
  const TrainingWorkload workload = GptWorkload();
  const std::string torch_arguments = TorchSizes(workload) + " --threads 1";
  Contender all[] = {{.strategy = SingleStrategy()},
                     {.strategy = TpStrategy(),
                      .threads = 1,
                      .assignments = {"mesh.tp=2"},
                      .torch_arguments = torch_arguments,
                      .torch_ranks = 2},
                     {.strategy = TpStrategy(),
                      .threads = 1,
                      .assignments = {"mesh.tp=2", "tensor_parallel.sequence_parallel=true"},
                      .torch_arguments = torch_arguments + " --sequence_parallel",
                      .torch_ranks = 2}};
  LS_RETURN_IF_ERROR(MeasureInTurn(workload, RoundsWith(peer), absl::MakeSpan(all)));
  std::printf("%s\n", workload.name.c_str());
  const auto& [single, whole, split] = all;
  for (const auto& [name, tp] : {std::pair("sequence whole", &whole), {"sequence split", &split}}) {
    std::printf("  %-34s %9.1f %9.1f %9.3f", name, single.best.gflops, tp->best.gflops,
                tp->best.gflops / single.best.gflops);
    PrintPeer(tp->best.gflops, tp->torch_gflops);
  }
  return absl::OkStatus();
}

// What a finer cut costs one rank: sums over several leaves or shards, against the same work with
// fewer of them.
absl::Status CompareCuts() {
  const int steps = absl::GetFlag(FLAGS_steps);
  std::printf("\none rank, 2 threads: finer cuts\n%-46s %9s %9s %9s\n", "", "coarse", "fine",
              "fraction");
  struct Row {
    TrainingWorkload workload;
    int heads;
    std::string coarse, fine;  // of [cut]
    std::string other = {};    // which both have
  };
  for (const Row& row : {Row{GptWorkload(), 6, "features=1", "features=2"},
                         Row{GptWorkload(), 12, "features=1", "features=4"},
                         Row{WideGptWorkload(), 16, "features=1", "features=4"},
                         Row{GptWorkload(), 6, "tokens=1", "tokens=2"},
                         Row{GptWorkload(), 6, "tokens=1", "tokens=2", "micro_batches=4"},
                         Row{WideGptWorkload(), 16, "tokens=1", "tokens=2"},
                         // As many micro-batches in all.
                         Row{GptWorkload(), 6, "micro_batches=4", "shards=4"}}) {
    for (const char* compute : {"fp32", "bf16"}) {
      const auto measure = [&](const std::string& cut) {
        std::vector<std::string> assignments = {absl::StrCat("precision.compute=", compute),
                                                absl::StrCat("model.heads=", row.heads),
                                                absl::StrCat("cut.", cut)};
        if (!row.other.empty()) assignments.push_back(absl::StrCat("cut.", row.other));
        return MeasureTraining(row.workload, SingleStrategy(), steps, 1, 2, assignments);
      };
      double coarse = 0, fine = 0;
      for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
        LS_ASSIGN_OR_RETURN(const TrainingTiming one, measure(row.coarse));
        LS_ASSIGN_OR_RETURN(const TrainingTiming several, measure(row.fine));
        coarse = std::max(coarse, one.gflops);
        fine = std::max(fine, several.gflops);
      }
      const std::string name = absl::StrCat(row.workload.name, ", ", compute, ", ", row.fine,
                                            row.other.empty() ? "" : ", ", row.other);
      std::printf("%-46s %9.1f %9.1f %9.3f\n", name.c_str(), coarse, fine, fine / coarse);
      std::fflush(stdout);
    }
  }
  return absl::OkStatus();
}

// What adapters on queries and values save, against training all of a wide model.
absl::Status CompareAdapters() {
  std::printf("\none rank, 2 threads: lora, rank 4 on queries and values\n%-36s %9s %9s %9s %9s\n",
              "", "peak MiB", "of full", "step ms", "speed-up");
  const TrainingWorkload workload = WideGptWorkload();
  Contender both[] = {{.strategy = SingleStrategy()},
                      {.strategy = LoraStrategy(),
                       .assignments = {"lora.layers=[\"*.qkv.q\", \"*.qkv.v\"]", "lora.rank=4"}}};
  LS_RETURN_IF_ERROR(MeasureInTurn(workload, RoundsWith({}), absl::MakeSpan(both)));
  std::printf("%s\n", workload.name.c_str());
  const TrainingTiming &full = both[0].best, &lora = both[1].best;
  for (const auto& [name, timing] : {std::pair("full fine-tuning", &full), {"lora", &lora}}) {
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
    return FindTorchPeer(absl::GetFlag(FLAGS_python), script);
  };
  const std::optional<TorchPeer> peer = peer_at(absl::GetFlag(FLAGS_torch_peer));
  const std::vector<std::pair<std::string, std::function<absl::Status()>>> tables = {
      {"limit", [&] { return CompareWithTheLimit(peer); }},
      {"bf16", [&] { return CompareBf16(peer); }},
      {"ranks", [] { return CompareRanks(); }},
      {"fsdp", [&] { return CompareSharding(peer); }},
      {"tp",
       [&] { return CompareTensorParallel(peer_at(absl::GetFlag(FLAGS_torch_tensor_parallel))); }},
      {"cuts", [] { return CompareCuts(); }},
      {"lora", [] { return CompareAdapters(); }}};
  const std::vector<std::string> wanted = absl::GetFlag(FLAGS_tables);
  for (const std::string& name : wanted) {
    const auto named = [&name](const auto& table) { return table.first == name; };
    if (std::ranges::none_of(tables, named)) {
      return absl::InvalidArgumentError("--tables: there is no '" + name +
                                        "', only limit, bf16, ranks, fsdp, tp, cuts and lora");
    }
  }
  for (const auto& [name, compare] : tables) {
    if (wanted.empty() || std::ranges::count(wanted, name) > 0) LS_RETURN_IF_ERROR(compare());
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
