// How fast training is, against what the machine could do and against PyTorch on the same work.
//
//   ./bazelw run //tools/bench:training -- --python /path/to/python
//
// --tables fsdp,tp makes these tables only. Each row trains a whole model through the trainer, data
// and all. Model FLOPs are 6 multiply-adds of forward, attention counted
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
#include "core/base/nearest.h"
#include "core/base/status.h"
#include "strategies/cp/cp.h"
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
ABSL_FLAG(std::string, torch_peer, "tools/bench/torch_peer.py",
          "the script of the PyTorch side; empty: no comparison");
ABSL_FLAG(std::vector<std::string>, tables, {},
          "of limit, llama, context, moe, bf16, ranks, fsdp, tp, cp, cuts, lora, probes, guard; "
          "default: all");
ABSL_FLAG(std::string, torch_llama, "tools/bench/torch_llama.py",
          "the script of the PyTorch side for a Llama; empty: no comparison");
ABSL_FLAG(std::string, torch_tensor_parallel, "tools/bench/torch_tensor_parallel.py",
          "the script of the PyTorch side for tensor parallelism; empty: no comparison");

namespace lockstep {
namespace {

// The rounds that the flags ask for.
Rounds RoundsWith(const std::optional<TorchPeer>& peer) {
  return {.count = absl::GetFlag(FLAGS_rounds), .steps = absl::GetFlag(FLAGS_steps), .peer = peer};
}

// One rank of two threads against the machine's limit and against PyTorch.
absl::Status CompareWithTheLimit(const std::vector<TrainingWorkload>& workloads,
                                 const std::optional<TorchPeer>& peer) {
  std::printf("\none rank, 2 threads, fp32\n%-36s %9s %9s %9s %8s %9s %7s\n", "", "GFLOP/s",
              "limit", "fraction", "outside", "PyTorch", "ratio");
  for (const TrainingWorkload& workload : workloads) {
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

void PrintHeader(const char* what, const char* base, const char* other) {
  std::printf("\n%s\n%-46s %9s %9s %9s %9s %7s\n", what, "", base, other, "ratio", "PyTorch",
              "ratio");
}

// Times all contenders in turn and prints a row for each but the first: what the first does and
// what this one does, in GFLOP/s, their ratio, and PyTorch's side. A row without a name has that of
// the workload.
absl::Status CompareWithTheFirst(const TrainingWorkload& workload,
                                 const std::optional<TorchPeer>& peer,
                                 std::vector<Contender> contenders) {
  LS_RETURN_IF_ERROR(MeasureInTurn(workload, RoundsWith(peer), absl::MakeSpan(contenders)));
  const double base = contenders[0].best.gflops;
  for (size_t i = 1; i < contenders.size(); ++i) {
    const Contender& row = contenders[i];
    std::printf("%-46s %9.1f %9.1f %9.3f", (row.name.empty() ? workload.name : row.name).c_str(),
                base, row.best.gflops, row.best.gflops / base);
    PrintPeer(row.best.gflops, row.torch_gflops);
  }
  return absl::OkStatus();
}

// bf16 against fp32, and against PyTorch's autocast.
absl::Status CompareBf16(const std::optional<TorchPeer>& peer) {
  PrintHeader("one rank, 2 threads", "fp32", "bf16");
  for (const TrainingWorkload& workload : {ResNetWorkload(), GptWorkload()}) {
    LS_RETURN_IF_ERROR(CompareWithTheFirst(
        workload, peer,
        {{.strategy = SingleStrategy()},
         {.strategy = SingleStrategy(),
          .assignments = {"precision.compute=bf16"},
          .torch_arguments = workload.torch_arguments + " --threads 2 --amp bf16"}}));
  }
  return absl::OkStatus();
}

// Two ranks of one thread against one.
absl::Status CompareRanks() {
  PrintHeader("one thread a rank, the same batch a rank", "1 rank", "2 ranks");
  for (const TrainingWorkload& workload : {ResNetWorkload(), GptWorkload()}) {
    LS_RETURN_IF_ERROR(
        CompareWithTheFirst(workload, {},
                            {{.strategy = SingleStrategy(), .threads = 1},
                             {.strategy = DdpStrategy(), .ranks = 2, .threads = 1}}));
  }
  return absl::OkStatus();
}

// What shards cost: fsdp against ddp, and against PyTorch's over gloo.
absl::Status CompareSharding(const std::optional<TorchPeer>& peer) {
  PrintHeader("two ranks of one thread", "ddp", "fsdp");
  const TrainingWorkload workload = GptWorkload();
  return CompareWithTheFirst(
      workload, peer,
      {{.strategy = DdpStrategy(), .ranks = 2, .threads = 1},
       {.strategy = FsdpStrategy(),
        .ranks = 2,
        .threads = 1,
        .torch_arguments = workload.torch_arguments + " --strategy fsdp --threads 1"}});
}

// What splitting the layers costs: two ranks of one thread against one of two threads, with the
// sequence whole and split, and against PyTorch's over gloo.
absl::Status CompareTensorParallel(const std::optional<TorchPeer>& peer) {
  PrintHeader("two ranks of one thread, one batch: tp", "single", "tp");
  const TrainingWorkload workload = GptWorkload();
  std::printf("%s\n", workload.name.c_str());
  const std::string torch_arguments = TorchSizes(workload) + " --threads 1";
  return CompareWithTheFirst(workload, peer,
                             {{.strategy = SingleStrategy()},
                              {.name = "  sequence whole",
                               .strategy = TpStrategy(),
                               .ranks = 2,
                               .axis = "tp",
                               .threads = 1,
                               .torch_arguments = torch_arguments},
                              {.name = "  sequence split",
                               .strategy = TpStrategy(),
                               .ranks = 2,
                               .axis = "tp",
                               .threads = 1,
                               .assignments = {"tensor_parallel.sequence_parallel=true"},
                               .torch_arguments = torch_arguments + " --sequence_parallel"}});
}

// What dividing sequences costs: two ranks of one thread against one of two threads, for each way
// in which queries meet the keys of the other rank.
absl::Status CompareContextParallel() {
  PrintHeader("two ranks of one thread, one batch: cp", "single", "cp");
  const TrainingWorkload workload = GptWorkload();
  std::printf("%s\n", workload.name.c_str());
  std::vector<Contender> contenders = {{.strategy = SingleStrategy()}};
  for (const char* attention : {"gather", "ring", "ulysses"}) {
    contenders.push_back({.name = absl::StrCat("  ", attention),
                          .strategy = CpStrategy(),
                          .ranks = 2,
                          .axis = "cp",
                          .threads = 1,
                          .assignments = {absl::StrCat("context_parallel.attention=", attention)}});
  }
  return CompareWithTheFirst(workload, {}, std::move(contenders));
}

// What experts cost: eight, of which a token has two, against an MLP as wide as two of them; and
// against PyTorch's loop over the experts or its grouped product, the better one.
absl::Status CompareExperts(const std::optional<TorchPeer>& peer) {
  PrintHeader("one rank, 2 threads, fp32: 8 experts, top 2", "dense", "experts");
  const TrainingWorkload workload = LlamaWorkload();
  // A later argument counts.
  return CompareWithTheFirst(
      workload, peer,
      {{.strategy = SingleStrategy()},
       {.strategy = SingleStrategy(),
        .assignments = {"model.experts.count=8", "model.experts.top_k=2",
                        "model.experts.width=512"},
        .torch_arguments =
            workload.torch_arguments + " --mlp_width 512 --experts 8 --top_k 2 --threads 2"}});
}

// What a finer cut costs one rank: sums over several leaves or shards, against the same work with
// fewer of them.
absl::Status CompareCuts() {
  PrintHeader("one rank, 2 threads: finer cuts", "coarse", "fine");
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
      const std::string name = absl::StrCat(row.workload.name, ", ", compute, ", ", row.fine,
                                            row.other.empty() ? "" : ", ", row.other);
      const auto with = [&](const std::string& cut) {
        Contender contender = {.name = name, .strategy = SingleStrategy()};
        contender.assignments = {absl::StrCat("precision.compute=", compute),
                                 absl::StrCat("model.heads=", row.heads),
                                 absl::StrCat("cut.", cut)};
        if (!row.other.empty()) contender.assignments.push_back(absl::StrCat("cut.", row.other));
        return contender;
      };
      LS_RETURN_IF_ERROR(CompareWithTheFirst(row.workload, {}, {with(row.coarse), with(row.fine)}));
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

// Steps in which everything is probed against steps without probes.
absl::Status CompareProbes() {
  std::printf("\none rank, 2 threads: probes of all places\n%-36s %9s %9s\n", "", "step ms",
              "of plain");
  const TrainingWorkload workload = GptWorkload();
  const std::string all_steps = "probe.steps=1000";
  Contender ways[] = {{.name = "no probes", .strategy = SingleStrategy()},
                      {.name = "hashes", .strategy = SingleStrategy(), .assignments = {all_steps}},
                      {.name = "values",
                       .strategy = SingleStrategy(),
                       .assignments = {all_steps, "probe.values=true"}}};
  LS_RETURN_IF_ERROR(MeasureInTurn(workload, RoundsWith({}), absl::MakeSpan(ways)));
  std::printf("%s\n", workload.name.c_str());
  for (const Contender& way : ways) {
    std::printf("  %-34s %9.1f %9.2f\n", way.name.c_str(), 1e3 * way.best.step_seconds,
                way.best.step_seconds / ways[0].best.step_seconds);
  }
  std::fflush(stdout);
  return absl::OkStatus();
}

// What a guarded step costs beyond a plain one, and so one of 100: runs in which each step is
// guarded against runs in which none is, as a guard works between the times of steps. With
// guard.repeat_on = "other_rank" a run also makes a second state on each rank at its first check,
// which the mean over the run's steps has in it.
absl::Status CompareGuard() {
  std::printf("\nguard.every: repeated and compared steps\n%-46s %9s %9s %9s %9s\n", "", "step ms",
              "guard ms", "every=1", "every=100");
  const TrainingWorkload workload = GptWorkload();
  std::printf("%s\n", workload.name.c_str());
  struct Ranks {
    const char* name;
    Contender plain;
    std::vector<std::string> repeat_on;
  };
  const Contender single = {
      .strategy = SingleStrategy(), .threads = 2, .assignments = {"checkpoint.keep=0"}};
  const Contender replicas = {
      .strategy = DdpStrategy(), .ranks = 2, .threads = 1, .assignments = {"checkpoint.keep=0"}};
  for (const Ranks& ranks :
       {Ranks{"one rank of two threads", single, {"same_rank"}},
        Ranks{"two replicas of one thread", replicas, {"same_rank", "other_rank"}}}) {
    std::vector<Contender> ways = {ranks.plain};
    for (const std::string& repeat_on : ranks.repeat_on) {
      Contender guarded = ranks.plain;
      guarded.name = absl::StrCat(ranks.name, ", ", repeat_on);
      guarded.assignments.push_back("guard.every=1");
      guarded.assignments.push_back(absl::StrCat("guard.repeat_on=", repeat_on));
      ways.push_back(std::move(guarded));
    }
    LS_RETURN_IF_ERROR(MeasureInTurn(workload, RoundsWith({}), absl::MakeSpan(ways)));
    const double steps = absl::GetFlag(FLAGS_steps) + kWarmUpSteps;
    const double step = ways[0].best.step_seconds;
    for (size_t i = 1; i < ways.size(); ++i) {
      const double guard = (ways[i].best.run_seconds - ways[0].best.run_seconds) / steps;
      std::printf("  %-44s %9.1f %9.1f %9.2f %8.2f%%\n", ways[i].name.c_str(), 1e3 * step,
                  1e3 * guard, 1 + guard / step, guard / step);  // a hundredth, in percent
    }
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

absl::StatusOr<int> RunBenchmark() {
  LS_RETURN_IF_ERROR(CheckRange("rounds", absl::GetFlag(FLAGS_rounds), 1, 1'000'000));
  LS_RETURN_IF_ERROR(CheckRange("steps", absl::GetFlag(FLAGS_steps), 1, 1'000'000));
  const auto peer_at = [](const std::string& script) {
    return FindTorchPeer(absl::GetFlag(FLAGS_python), script);
  };
  const std::optional<TorchPeer> peer = peer_at(absl::GetFlag(FLAGS_torch_peer));
  const std::vector<std::pair<std::string, std::function<absl::Status()>>> tables = {
      {"limit",
       [&] {
         return CompareWithTheLimit({ResNetWorkload(), GptWorkload()}, peer);
       }},
      {"llama",
       [&] {
         return CompareWithTheLimit({LlamaWorkload()}, peer_at(absl::GetFlag(FLAGS_torch_llama)));
       }},
      {"context",
       [&] {
         return CompareWithTheLimit({LongLlamaWorkload()},
                                    peer_at(absl::GetFlag(FLAGS_torch_llama)));
       }},
      {"moe", [&] { return CompareExperts(peer_at(absl::GetFlag(FLAGS_torch_llama))); }},
      {"bf16", [&] { return CompareBf16(peer); }},
      {"ranks", [] { return CompareRanks(); }},
      {"fsdp", [&] { return CompareSharding(peer); }},
      {"tp",
       [&] { return CompareTensorParallel(peer_at(absl::GetFlag(FLAGS_torch_tensor_parallel))); }},
      {"cp", [] { return CompareContextParallel(); }},
      {"cuts", [] { return CompareCuts(); }},
      {"lora", [] { return CompareAdapters(); }},
      {"probes", [] { return CompareProbes(); }},
      {"guard", [] { return CompareGuard(); }}};
  const std::vector<std::string> wanted = absl::GetFlag(FLAGS_tables);
  for (const std::string& name : wanted) {
    LS_RETURN_IF_ERROR(
        FindNamed("table", name, tables, [](const auto& table) { return table.first; }).status());
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
