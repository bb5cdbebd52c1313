// What pipelines cost: a GPT in two stages, against one rank that has all of it, and PyTorch.
//
//   ./bazelw run //tools/bench:pipeline -- --python /path/to/python
//
// --schedules gpipe,zb_v makes these rows only.
//
// Two ranks of one thread compute as much as one of two, but for the bubble: the time in which a
// rank waits for the other stage. Theory says how large it is: (p - 1) / (m + p - 1) for p equal
// stages and m micro-batches, and more where stages are not equal. What is compared is measured in
// turn, several rounds, and the best of each counts: a machine's neighbours slow down now the one
// and now the other.

#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "strategies/gpipe/gpipe.h"
#include "strategies/single/single.h"
#include "tools/bench/training_run.h"

ABSL_FLAG(int, steps, 8, "timed steps of each measurement; two more warm up");
ABSL_FLAG(int, rounds, 3, "measurements of each figure, of which the best counts");
ABSL_FLAG(int, micro_batches, 8, "into which a batch of 16 is cut");
ABSL_FLAG(std::vector<std::string>, schedules,
          (std::vector<std::string>{"gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zb_v",
                                    "dualpipe_v"}),
          "schedules of the stages: a row for each");
ABSL_FLAG(std::string, python, "python3", "an interpreter with PyTorch, to compare with");
ABSL_FLAG(std::string, torch_pipeline, "tools/bench/torch_pipeline.py",
          "the script of the PyTorch side");

namespace lockstep {
namespace {

absl::StatusOr<int> RunBenchmark() {
  const TrainingWorkload workload = GptWorkload();
  const int micro_batches = absl::GetFlag(FLAGS_micro_batches);
  const std::string cut = absl::StrCat("cut.micro_batches=", micro_batches);
  std::vector<Contender> contenders = {{.strategy = SingleStrategy(), .assignments = {cut}}};
  for (const std::string& schedule : absl::GetFlag(FLAGS_schedules)) {
    Contender& stages = contenders.emplace_back(Contender{
        .name = schedule, .strategy = GPipeStrategy(), .ranks = 2, .axis = "pp", .threads = 1});
    stages.assignments = {cut, "recompute.micro_batches=never",
                          absl::StrCat("pipeline.schedule=", schedule)};
    if (stages.name == "interleaved_1f1b") {
      stages.assignments.push_back("pipeline.stages_per_rank=2");
    }
    // PyTorch has no others for one stage a rank.
    if (stages.name != "gpipe" && stages.name != "1f1b") continue;
    stages.torch_arguments = absl::StrCat(TorchSizes(workload), " --threads 1 --schedule ",
                                          schedule, " --micro_batches ", micro_batches);
  }
  LS_RETURN_IF_ERROR(MeasureInTurn(
      workload,
      {.count = absl::GetFlag(FLAGS_rounds),
       .steps = absl::GetFlag(FLAGS_steps),
       .peer = FindTorchPeer(absl::GetFlag(FLAGS_python), absl::GetFlag(FLAGS_torch_pipeline))},
      absl::MakeSpan(contenders)));
  const double single = contenders[0].best.gflops;
  std::printf(
      "\n%s, %d micro-batches; two stages on ranks of one thread; single, two threads: %.1f "
      "GFLOP/s\n"
      "%-18s %9s %9s %9s %9s %9s %9s %9s %7s\n",
      workload.name.c_str(), micro_batches, single, "", "GFLOP/s", "of single", "allowed",
      "of that", "bubble", "predicted", "PyTorch", "ratio");
  for (size_t i = 1; i < contenders.size(); ++i) {
    const TrainingTiming& best = contenders[i].best;
    const double fraction = best.gflops / single, allowed = 1 - best.predicted_bubble;
    std::printf("%-18s %9.1f %9.3f %9.3f %9.3f %9.3f %9.3f", contenders[i].name.c_str(),
                best.gflops, fraction, allowed, fraction / allowed, best.bubble,
                best.predicted_bubble);
    PrintPeer(best.gflops, contenders[i].torch_gflops);
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
