// What pipelines cost: a GPT in two stages, against one rank that has all of it, and PyTorch.
//
//   ./bazelw run //tools/bench:pipeline -- --python /path/to/python
//
// Two ranks of one thread compute as much as one of two, but for the bubble: the time in which a
// rank waits for the other stage. Theory says how large it is: (p - 1) / (m + p - 1) for p equal
// stages and m micro-batches, and more where stages are not equal. What is compared is measured in
// turn, several rounds, and the best of each counts: a machine's neighbours slow down now the one
// and now the other.

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "strategies/gpipe/gpipe.h"
#include "strategies/single/single.h"
#include "tools/bench/torch_peer.h"
#include "tools/bench/training_run.h"

ABSL_FLAG(int, steps, 8, "timed steps of each measurement; two more warm up");
ABSL_FLAG(int, rounds, 3, "measurements of each figure, of which the best counts");
ABSL_FLAG(int, micro_batches, 8, "into which a batch of 16 is cut");
ABSL_FLAG(std::string, python, "python3", "an interpreter with PyTorch, to compare with");
ABSL_FLAG(std::string, torch_pipeline, "tools/bench/torch_pipeline.py",
          "the script of the PyTorch side");

namespace lockstep {
namespace {

struct Row {
  std::string schedule;
  std::vector<std::string> options;
  std::string torch_schedule;  // empty: PyTorch has none for one stage a rank
  TrainingTiming best = {};
  double torch = 0;  // 0: not measured
};

absl::StatusOr<int> RunBenchmark() {
  const int steps = absl::GetFlag(FLAGS_steps);
  const TrainingWorkload workload = GptWorkload();
  std::string reason;
  const std::optional<TorchPeer> peer =
      FindTorchPeer(absl::GetFlag(FLAGS_python), absl::GetFlag(FLAGS_torch_pipeline), &reason);
  if (!peer) std::printf("PyTorch is left out: %s\n", reason.c_str());
  Row rows[] = {{"gpipe", {}, "gpipe"},
                {"1f1b", {}, "1f1b"},
                {"interleaved_1f1b", {"pipeline.stages_per_rank=2"}, ""},
                {"zb_h1", {}, ""},
                {"zb_v", {}, ""},
                {"dualpipe_v", {}, ""}};
  const std::string cut = absl::StrCat("cut.micro_batches=", absl::GetFlag(FLAGS_micro_batches));
  double single = 0;
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    LS_ASSIGN_OR_RETURN(const TrainingTiming alone,
                        MeasureTraining(workload, SingleStrategy(), steps, 1, 2, {cut}));
    single = std::max(single, alone.gflops);
    for (Row& row : rows) {
      std::vector<std::string> options = row.options;
      options.insert(options.end(), {cut, "mesh.pp=2", "recompute.micro_batches=never",
                                     absl::StrCat("pipeline.schedule=", row.schedule)});
      LS_ASSIGN_OR_RETURN(const TrainingTiming timing,
                          MeasureTraining(workload, GPipeStrategy(), steps, 1, 1, options));
      if (timing.gflops > row.best.gflops) row.best = timing;
      if (!peer || row.torch_schedule.empty()) continue;
      // Without the name of the model: the script knows one.
      const std::string arguments = absl::StrCat(
          workload.torch_arguments.substr(std::string("gpt ").size()), " --threads 1 --schedule ",
          row.torch_schedule, " --micro_batches ", absl::GetFlag(FLAGS_micro_batches));
      row.torch = std::max(row.torch, RunTorchPeer(*peer, arguments, 2).value_or(0));
    }
  }
  std::printf(
      "\n%s, %d micro-batches; two stages on ranks of one thread; single, two threads: %.1f "
      "GFLOP/s\n"
      "%-18s %9s %9s %9s %9s %9s %9s %9s %7s\n",
      workload.name.c_str(), absl::GetFlag(FLAGS_micro_batches), single, "", "GFLOP/s", "of single",
      "allowed", "of that", "bubble", "predicted", "PyTorch", "ratio");
  for (const Row& row : rows) {
    const double fraction = row.best.gflops / single, allowed = 1 - row.best.predicted_bubble;
    std::printf("%-18s %9.1f %9.3f %9.3f %9.3f %9.3f %9.3f", row.schedule.c_str(), row.best.gflops,
                fraction, allowed, fraction / allowed, row.best.bubble, row.best.predicted_bubble);
    PrintPeer(row.best.gflops, row.torch);
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Times pipelines against one rank and against PyTorch; see docs/benchmarks.md.",
       .files = {__FILE__}},
      [](const auto&) { return lockstep::RunBenchmark(); });
}
