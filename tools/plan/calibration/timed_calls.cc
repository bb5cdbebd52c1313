#include "tools/plan/calibration/timed_calls.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/clock.h"
#include "core/base/parallel.h"
#include "core/base/status.h"
#include "core/base/subprocess.h"
#include "core/comm/launch.h"
#include "core/comm/mpi/launch.h"
#include "core/comm/mpi/process.h"
#include "core/tensor/allocator.h"
#include "tools/bench/call_timing.h"
#include "tools/collectives/call_once.h"
#include "tools/experiment/paths.h"
#include "tools/plan/calibration/timed_waits.h"
#include "tools/plan/calibration/training_kernels.h"

namespace lockstep {
namespace {

constexpr int64_t kSizes[] = {64, 4 << 10, 64 << 10, 1 << 20, 8 << 20, 32 << 20};
// Calls of training; all others take about as long as one of these.
constexpr Operation kOperationsTimed[] = {Operation::kAllReduce, Operation::kReduceScatter,
                                          Operation::kAllGather, Operation::kBroadcast,
                                          Operation::kSend};

// Rounds of kernels beside a call, at most.
constexpr int kMostRounds = 32;

// What a core's nearest cache holds, about.
constexpr int64_t kCacheBytes = 1 << 20;

// What kernels do to the caches before a call: they write what it reads, and read and write much
// else.
class KernelLikeWork {
 public:
  explicit KernelLikeWork(const Tensor& input) : input_(input), other_(kCacheBytes) {}

  void operator()() {
    std::fill_n(input_.raw(), input_.bytes(), std::byte{0});
    for (char& byte : other_) ++byte;
  }

 private:
  Tensor input_;
  std::vector<char> other_;
};

// Times calls as training makes them.
class CallsOfTraining {
 public:
  // A round of `kernels` takes `round_seconds`. Both outlive this.
  CallsOfTraining(RankHandle& handle, TrainingKernels& kernels, double round_seconds)
      : handle_(handle),
        kernels_(kernels),
        round_seconds_(round_seconds),
        max_(MaxOver(handle.comm())) {}

  // The longest that a call takes in three places: behind calls like it, behind what kernels do to
  // the caches, and beside kernels. Most calls of the engine are made so: it begins them, computes,
  // and waits then. What ranks take from kernels meanwhile is the call's time, too.
  absl::StatusOr<double> Seconds(const TimedCall& call, double budget) {
    const CallTensors memory = MakeRankMemory(allocator_, call.dtype, call.elements);
    const CallTensors tensors = TensorsOf(call, handle_.rank(), memory);
    const auto begin = [&] {
      return BeginOnce(handle_.comm(), call.operation, tensors.input, tensors.output,
                       ReduceOp::kSum, /*root=*/0, "calibration");
    };
    // The seconds of a call that is begun before `meanwhile`, or behind it.
    enum class Begins { kNever, kBefore, kBehind };
    const auto time = [&](Begins begins, const std::function<void()>& meanwhile) {
      const auto run = [&] {
        std::array<Work, 2> works;
        if (begins == Begins::kBefore) works = begin();
        meanwhile();
        if (begins == Begins::kBehind) works = begin();
        return WaitAll(absl::MakeSpan(works));
      };
      return TimeCall(run, budget / 5, max_);
    };
    LS_ASSIGN_OR_RETURN(const double alone, time(Begins::kBefore, [] {}));
    const std::function<void()> passes = KernelLikeWork(tensors.input);
    LS_ASSIGN_OR_RETURN(const double passes_alone, time(Begins::kNever, passes));
    LS_ASSIGN_OR_RETURN(const double with_passes, time(Begins::kBehind, passes));
    const int rounds = std::clamp(static_cast<int>(alone / round_seconds_), 1, kMostRounds);
    const std::function<void()> kernels = [&] { kernels_.Run(rounds); };
    LS_ASSIGN_OR_RETURN(const double kernels_alone, time(Begins::kNever, kernels));
    LS_ASSIGN_OR_RETURN(const double with_kernels, time(Begins::kBefore, kernels));
    return std::max({alone, with_passes - passes_alone, with_kernels - kernels_alone});
  }

 private:
  RankHandle& handle_;
  TrainingKernels& kernels_;
  const double round_seconds_;
  const MaxOverRanks max_;
  CpuAllocator allocator_;
};

absl::StatusOr<std::vector<MeasuredCall>> TimeCallsOfRank(RankHandle& handle, Transport transport,
                                                          double seconds, double most_seconds) {
  const int ranks = handle.size();
  const double each =
      seconds / static_cast<double>(std::size(kSizes) * std::size(kOperationsTimed));
  const int64_t begin = NowNanos();
  const MaxOverRanks max = MaxOver(handle.comm());
  SetThreads(1);
  TrainingKernels kernels;
  const auto round = [&] {
    kernels.Run(1);
    return absl::OkStatus();
  };
  LS_ASSIGN_OR_RETURN(const double round_seconds, TimeCall(round, /*budget=*/0.01, max));
  CallsOfTraining calls(handle, kernels, round_seconds);
  std::vector<MeasuredCall> rows;
  for (const int64_t size : kSizes) {
    for (const Operation operation : kOperationsTimed) {
      // All ranks see the same time, and stop together.
      LS_ASSIGN_OR_RETURN(const double spent, max(SecondsSince(begin)));
      if (spent > most_seconds && size > kSizes[0]) return rows;
      const TimedCall call = CallOfSize(operation, DType::kF32, ranks, size, /*in_place=*/false);
      LS_ASSIGN_OR_RETURN(const double call_seconds, calls.Seconds(call, each));
      rows.push_back({.operation = operation,
                      .transport = transport,
                      .ranks = ranks,
                      .bytes = static_cast<double>(call.bytes()),
                      .seconds = call_seconds});
    }
  }
  return rows;
}

absl::StatusOr<Measurements> TimeOfRank(RankHandle& handle, Transport transport, double seconds,
                                        double most_seconds) {
  Measurements measured;
  LS_ASSIGN_OR_RETURN(measured.calls,
                      TimeCallsOfRank(handle, transport, 0.7 * seconds, most_seconds));
  LS_ASSIGN_OR_RETURN(measured.waits, TimeWaits(handle, transport, 0.3 * seconds));
  return measured;
}

}  // namespace

int CallsToTime() { return static_cast<int>(std::size(kSizes) * std::size(kOperationsTimed)); }

absl::StatusOr<Measurements> TimeCallsOfThreads(int ranks, double seconds, double most_seconds) {
  Measurements measured;
  LS_RETURN_IF_ERROR(RunRanks(ranks, {}, [&](RankHandle& handle) -> absl::Status {
    LS_ASSIGN_OR_RETURN(Measurements own,
                        TimeOfRank(handle, Transport::kThreads, seconds, most_seconds));
    if (handle.rank() == 0) measured = std::move(own);
    return absl::OkStatus();
  }));
  return measured;
}

absl::StatusOr<Measurements> TimeCallsOfProcesses(const std::string& mpirun, int ranks) {
  LS_ASSIGN_OR_RETURN(const std::string self, OwnProgram());
  const std::vector<std::string> command = {mpirun, "-n", absl::StrCat(ranks),
                                            "--allow-run-as-root", self};
  LS_ASSIGN_OR_RETURN(const ProcessResult result, RunProcess({.arguments = command}));
  if (result.interrupted) return absl::CancelledError("interrupted");
  if (!result.ok()) {
    return absl::AbortedError(absl::StrCat(mpirun, " ended with ", result.Describe()));
  }
  Measurements measured;
  const std::vector<std::string> lines = absl::StrSplit(result.out, '\n');
  for (const std::string& line : lines) {
    // Other lines are the launcher's.
    if (const auto call = ParseMeasuredCall(line); call.ok()) measured.calls.push_back(*call);
    if (const auto wait = ParseMeasuredWait(line); wait.ok()) measured.waits.push_back(*wait);
  }
  return measured;
}

absl::Status TimeCallsOfProcess(double seconds) {
  LS_ASSIGN_OR_RETURN(const auto process, mpi::Process::Start());
  const absl::Status status =
      mpi::RunRank(*process, process->size(), {}, [&](RankHandle& handle) -> absl::Status {
        LS_ASSIGN_OR_RETURN(const Measurements measured,
                            TimeOfRank(handle, Transport::kMpi, seconds, kMostSecondsOfCalls));
        if (handle.rank() != 0) return absl::OkStatus();
        for (const MeasuredCall& row : measured.calls) std::puts(ToText(row).c_str());
        for (const MeasuredWait& row : measured.waits) std::puts(ToText(row).c_str());
        return absl::OkStatus();
      }).status;
  if (!status.ok()) process->Abandon();
  return status;
}

}  // namespace lockstep
