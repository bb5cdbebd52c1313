// What checkpoints cost a run that goes on meanwhile.
//
//   ./bazelw run //tools/bench:checkpoints
//
// --workloads gpt makes the row of that one only.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/flags.h"
#include "core/base/nearest.h"
#include "core/base/status.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/single/single.h"
#include "tools/bench/training_run.h"

ABSL_FLAG(int, rounds, 3, "measurements of each, of which the fastest counts");
ABSL_FLAG(int, steps, 10, "steps of each measurement, after two that warm up");
ABSL_FLAG(std::vector<std::string>, workloads,
          (std::vector<std::string>{"gpt", "gpt_threads", "gpt_wide"}), "a row for each");

namespace lockstep {
namespace {

// Seconds in which each of so many threads copies as many bytes, all at the same time: what ranks
// would need to copy their state. The fastest of several tries.
double CopySeconds(int threads, int64_t bytes) {
  constexpr int kTries = 5;
  double fastest = 0;
  std::vector<std::vector<char>> from(static_cast<size_t>(threads)), to(from);
  for (auto* buffers : {&from, &to}) {
    for (std::vector<char>& buffer : *buffers) buffer.assign(static_cast<size_t>(bytes), 1);
  }
  for (int i = 0; i < kTries; ++i) {
    const int64_t begun = NowNanos();
    {
      std::vector<std::jthread> copies;
      for (size_t t = 0; t < from.size(); ++t) {
        copies.emplace_back([&, t] { std::memcpy(to[t].data(), from[t].data(), from[t].size()); });
      }
    }
    const double seconds = SecondsSince(begun);
    fastest = i == 0 ? seconds : std::min(fastest, seconds);
  }
  return fastest;
}

// A workload, and so few steps between its checkpoints that one is being written nearly always.
struct Case {
  std::string name;  // that --workloads has for it
  TrainingWorkload workload;
  std::string how;  // it is trained
  Contender contender;
  int every = 1;  // steps
};

// The batch of the experiment gpt_wide, half of it on each rank.
TrainingWorkload WideGptOfTheExperiment() {
  TrainingWorkload workload = WideGptWorkload();
  workload.name = "gpt_wide";
  workload.batch = 4;
  return workload;
}

absl::Status MeasureCase(const Case& measured) {
  const TrainingWorkload& workload = measured.workload;
  std::vector<Contender> contenders(2, measured.contender);
  contenders[0].assignments = {"checkpoint.keep=0"};
  contenders[1].assignments = {"checkpoint.keep=1",
                               absl::StrCat("checkpoint.every=", measured.every)};
  LS_RETURN_IF_ERROR(MeasureInTurn(
      workload, {.count = absl::GetFlag(FLAGS_rounds), .steps = absl::GetFlag(FLAGS_steps)},
      absl::MakeSpan(contenders)));
  const TrainingTiming &without = contenders[0].best, &with = contenders[1].best;
  const CheckpointCosts& costs = with.checkpoints;
  const double count = static_cast<double>(std::max<int64_t>(1, costs.checkpoints));
  const double held = static_cast<double>(costs.held_nanos) * 1e-9 / count;
  const double copy = CopySeconds(measured.contender.ranks, costs.bytes);
  std::printf("%-36s %-28s %10s %10s %10s %8.2f %6d %8.2f %10s %10s %8.2f\n", workload.name.c_str(),
              measured.how.c_str(), FormatBytes(costs.bytes).c_str(), FormatDuration(held).c_str(),
              FormatDuration(copy).c_str(), held / copy, measured.every,
              static_cast<double>(costs.written_nanos) * 1e-9 / with.run_seconds,
              FormatDuration(without.mean_step_seconds).c_str(),
              FormatDuration(with.mean_step_seconds).c_str(),
              with.mean_step_seconds / without.mean_step_seconds);
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::StatusOr<int> RunBenchmark() {
  const Contender two_ranks = {.strategy = FsdpStrategy(), .ranks = 2, .threads = 1};
  const Contender two_threads = {.strategy = SingleStrategy(), .ranks = 1, .threads = 2};
  const char* const ranks = "fsdp, two ranks of a thread";
  const std::vector<Case> all = {
      {"gpt", GptWorkload(), ranks, two_ranks, 1},
      {"gpt_threads", GptWorkload(), "single, two threads", two_threads, 1},
      {"gpt_wide", WideGptOfTheExperiment(), ranks, two_ranks, 3}};
  std::vector<Case> wanted;
  for (const std::string& name : absl::GetFlag(FLAGS_workloads)) {
    LS_ASSIGN_OR_RETURN(
        wanted.emplace_back(),
        FindNamed("workload", name, all, [](const Case& measured) { return measured.name; }));
  }
  std::printf("%-36s %-28s %10s %10s %10s %8s %6s %8s %10s %10s %8s\n", "", "", "a rank", "held up",
              "memcpy", "ratio", "every", "of time", "step", "writing", "ratio");
  for (const Case& measured : wanted) LS_RETURN_IF_ERROR(MeasureCase(measured));
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Times how long checkpoints hold steps up, and steps while one is written.",
       .files = {__FILE__}},
      [](const auto&) { return lockstep::RunBenchmark(); });
}
