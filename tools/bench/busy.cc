// What other programs on the machine cost a training run: one rank of two threads, and of one
// thread, beside 0, 1 and 3 threads that compute all the time.
//
//   ./bazelw run //tools/bench:busy -- --python /path/to/python
//
// --competitors 3 makes that row only.

#include <atomic>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "strategies/single/single.h"
#include "tools/bench/training_run.h"

ABSL_FLAG(int, rounds, 3, "measurements of each figure, of which the mean counts");
ABSL_FLAG(int, steps, 200, "timed steps of each measurement, after two that warm up");
ABSL_FLAG(std::vector<std::string>, competitors, (std::vector<std::string>{"0", "1", "3"}),
          "threads that compute beside it: a row for each number");
ABSL_FLAG(std::string, python, "python3", "an interpreter with PyTorch, to compare with");
ABSL_FLAG(std::string, torch_peer, "tools/bench/torch_peer.py",
          "the script of the PyTorch side; empty: no comparison");

namespace lockstep {
namespace {

// Threads that compute as long as this lives.
class Competitors {
 public:
  explicit Competitors(int count) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this] {
        for (volatile double x = 1; !ends_.load(std::memory_order_relaxed);) x = x * 1.000001;
      });
    }
  }
  ~Competitors() { ends_ = true; }
  Competitors(const Competitors&) = delete;
  Competitors& operator=(const Competitors&) = delete;

 private:
  std::atomic<bool> ends_ = false;
  std::vector<std::jthread> threads_;  // joined before ends_ goes
};

// Milliseconds of a step: the mean over all steps of all rounds, as what stalls a step counts here,
// and PyTorch's median.
struct StepTimes {
  double ours = 0;
  double torch = 0;  // 0: not measured
};

absl::Status Measure(const std::optional<TorchPeer>& peer, int competitors) {
  const TrainingWorkload workload = SmallGptWorkload();
  const int rounds = absl::GetFlag(FLAGS_rounds);
  StepTimes times[2];  // of one thread, of two
  const Competitors beside(competitors);
  for (int round = 0; round < rounds; ++round) {
    for (int threads : {1, 2}) {
      Contender ours = {
          .strategy = SingleStrategy(),
          .threads = threads,
          .torch_arguments = absl::StrCat(workload.torch_arguments, " --threads ", threads,
                                          " --steps ", absl::GetFlag(FLAGS_steps) / 4)};
      LS_RETURN_IF_ERROR(MeasureInTurn(
          workload,
          {.count = 1,
           .steps = absl::GetFlag(FLAGS_steps),
           .peer = peer,
           .progress = absl::StrCat(workload.name, " beside ", competitors, ", ", threads,
                                    threads == 1 ? " thread, round " : " threads, round ",
                                    round + 1, " of ", rounds)},
          {&ours, 1}));
      StepTimes& sum = times[threads - 1];
      sum.ours += 1e3 * ours.best.mean_step_seconds / rounds;
      if (ours.torch_gflops > 0) {
        sum.torch += 1e3 * ours.best.step_seconds * ours.best.gflops / ours.torch_gflops / rounds;
      }
    }
  }
  std::printf("%11d %10.2f %10.2f %8.2f %12.1f %12.1f\n", competitors, times[0].ours, times[1].ours,
              times[1].ours / times[0].ours, times[0].torch, times[1].torch);
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::StatusOr<int> RunBenchmark() {
  LS_RETURN_IF_ERROR(CheckRange("rounds", absl::GetFlag(FLAGS_rounds), 1, 1'000'000));
  std::vector<int> rows;
  for (const std::string& word : absl::GetFlag(FLAGS_competitors)) {
    if (!absl::SimpleAtoi(word, &rows.emplace_back())) {
      return InvalidArgument("--competitors: '", word, "' is no number");
    }
    LS_RETURN_IF_ERROR(CheckRange("competitors", rows.back(), 0, 1000));
  }
  const std::optional<TorchPeer> peer =
      FindTorchPeer(absl::GetFlag(FLAGS_python), absl::GetFlag(FLAGS_torch_peer));
  std::printf("%s: ms a step\n%11s %10s %10s %8s %12s %12s\n", SmallGptWorkload().name.c_str(),
              "competitors", "1 thread", "2 threads", "ratio", "PyTorch, 1", "PyTorch, 2");
  for (int competitors : rows) LS_RETURN_IF_ERROR(Measure(peer, competitors));
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Times training beside other work on the same cores; see docs/benchmarks.md.",
       .files = {__FILE__}},
      [](const auto&) { return lockstep::RunBenchmark(); });
}
