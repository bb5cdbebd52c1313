// How fast collectives are, against what memory could do and against Open MPI on the same calls.
//
//   ./bazelw run //tools/bench:collectives
//   ./bazelw run //tools/bench:collectives -- --operations all_reduce --ranks 2,4 --in_place
//
// Each row is one operation on one size. Time is what a call takes among many in a row; algorithm
// and bus bandwidth are nccl-tests'; the limit is the time that memory needs for the bytes that
// must move (memory_limit.h), measured on the same memory in turn with the calls; the ratio says
// how many times as long Open MPI takes as the backend. Below each table stand the calls that are
// farthest from the goals.

#include <unistd.h>  // sysconf

#include <algorithm>  // std::sort
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/clock.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/comm/launch.h"
#include "core/tensor/allocator.h"
#include "tools/bench/call_timing.h"
#include "tools/bench/core_binding.h"
#include "tools/bench/memory_limit.h"
#include "tools/bench/mpi_peer.h"
#include "tools/bench/sweep.h"
#include "tools/collectives/call_once.h"

ABSL_FLAG(std::string, mpirun, "", "Open MPI's mpirun, to compare with; empty: the one on PATH");

namespace lockstep {
namespace {

// Open MPI, the limit and the backend are measured in turn, and the best of each counts: a
// machine's neighbours slow down now the one and now the other. Limit and backend are measured one
// right after the other, and the median of their ratios counts.
constexpr int kRounds = 5;

// The goals: seconds of small calls, and what large calls reach of the limit and of Open MPI's
// time.
constexpr int64_t kSmallBytes = 64 << 10, kLargeBytes = 64 << 20;
constexpr double kSmallSeconds = 3e-6, kOfLimit = 0.8, kOfOpenMpi = 1.5;

// Seconds that a call takes among ranks that are threads; `memory` is that of each.
absl::StatusOr<double> LocalSeconds(const TimedCall& call, absl::Span<const CallTensors> memory,
                                    double budget) {
  double seconds = 0;  // written by rank 0
  LS_RETURN_IF_ERROR(RunRanks(call.ranks, {}, [&](RankHandle& handle) -> absl::Status {
    const int rank = handle.rank();
    BindRank(rank, call.ranks);
    const CallTensors tensors = TensorsOf(call, rank, memory[static_cast<size_t>(rank)]);
    const auto run = [&] {
      return CallOnce(handle.comm(), call.operation, tensors.input, tensors.output, ReduceOp::kSum,
                      /*root=*/0, "benchmark");
    };
    LS_ASSIGN_OR_RETURN(const double own,
                        CheckAndTimeCall(call, rank, tensors, run, budget, MaxOver(handle.comm())));
    if (rank == 0) seconds = own;
    return absl::OkStatus();
  }));
  return seconds;
}

// An error if the ranks' memory would be more than the machine has.
absl::Status CheckMemory(int64_t bytes, int ranks) {
  const int64_t needed = bytes * ranks * 2;  // inputs and outputs
  const int64_t there = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  if (needed <= there / 10 * 9) return absl::OkStatus();
  return InvalidArgument(ranks, " ranks with payloads of up to ", FormatBytes(bytes), " need ",
                         FormatBytes(needed), " of memory; this machine has ", FormatBytes(there),
                         ". Use a smaller --max_bytes");
}

void PrintHeader(const Sweep& sweep, int ranks) {
  const int cores = AvailableCores();
  std::printf("\n%d ranks on %d core%s, %s, %s\n", ranks, cores, cores == 1 ? "" : "s",
              Name(sweep.dtype), sweep.in_place ? "in place" : "out of place");
  if (ranks > cores) {
    std::printf(
        "There are fewer cores than ranks: these take turns, and small calls take as long "
        "as the system lets each run.\n");
  }
  std::printf("%-15s %-10s %10s %10s %9s %9s %10s %9s %10s %6s\n", "operation", "backend", "size",
              "time", "alg GB/s", "bus GB/s", "limit", "of limit", "Open MPI", "ratio");
}

// The best times of one call, in seconds; 0: none.
struct Times {
  double own = 0;
  double limit = 0;
  double open_mpi = 0;
  std::vector<double> of_limits = {};  // of each round

  double of_limit() const {
    std::vector<double> sorted = of_limits;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  double of_open_mpi() const { return open_mpi / own; }
};

void KeepBest(double seconds, double& best) {
  if (seconds > 0 && (best == 0 || seconds < best)) best = seconds;
}

void PrintRow(const TimedCall& call, const Times& times) {
  const double bandwidth = static_cast<double>(call.bytes()) / times.own * 1e-9;
  const bool has_mpi = times.open_mpi > 0;
  absl::PrintF("%-15s %-10s %10s %10s %9.3f %9.3f %10s %9.2f %10s %6s\n", TimedName(call.operation),
               "local", FormatBytes(call.bytes()), FormatDuration(times.own), bandwidth,
               bandwidth * BusFactor(call.operation, call.ranks), FormatDuration(times.limit),
               times.of_limit(), has_mpi ? FormatDuration(times.open_mpi) : "-",
               has_mpi ? absl::StrFormat("%.2f", times.of_open_mpi()) : "-");
}

// Prints, of the calls that count, the one whose badness is greatest.
template <typename Counts, typename Badness, typename Text>
void PrintWorst(const std::vector<TimedCall>& calls, const std::vector<Times>& times,
                const std::string& what, Counts&& counts, Badness&& badness, Text&& text) {
  size_t worst = calls.size();
  for (size_t i = 0; i < calls.size(); ++i) {
    if (!counts(calls[i], times[i])) continue;
    if (worst == calls.size() || badness(times[i]) > badness(times[worst])) worst = i;
  }
  if (worst == calls.size()) return;
  absl::PrintF("%s: %s, %s of %s\n", what, text(times[worst]), TimedName(calls[worst].operation),
               FormatBytes(calls[worst].bytes()));
}

// What is farthest from each goal.
void PrintGoals(const std::vector<TimedCall>& calls, const std::vector<Times>& times) {
  const std::string small = FormatBytes(kSmallBytes), large = FormatBytes(kLargeBytes);
  const auto is_large = [](const TimedCall& call) { return call.bytes() >= kLargeBytes; };
  PrintWorst(
      calls, times, absl::StrCat("longest call up to ", small),
      [](const TimedCall& call, const Times&) { return call.bytes() <= kSmallBytes; },
      [](const Times& t) { return t.own; },
      [](const Times& t) {
        return absl::StrCat(FormatDuration(t.own), ", goal ", FormatDuration(kSmallSeconds));
      });
  PrintWorst(
      calls, times, absl::StrCat("least of the limit from ", large),
      [&](const TimedCall& call, const Times&) { return is_large(call); },
      [](const Times& t) { return -t.of_limit(); },
      [](const Times& t) { return absl::StrFormat("%.2f, goal %.1f", t.of_limit(), kOfLimit); });
  PrintWorst(
      calls, times, absl::StrCat("least ratio to Open MPI from ", large),
      [&](const TimedCall& call, const Times& t) { return is_large(call) && t.open_mpi > 0; },
      [](const Times& t) { return -t.of_open_mpi(); },
      [](const Times& t) {
        return absl::StrFormat("%.2f, goal %.1f", t.of_open_mpi(), kOfOpenMpi);
      });
}

// All calls with one number of ranks. Empty `mpirun`: Open MPI is left out.
absl::Status RunCalls(const Sweep& sweep, int ranks, std::string mpirun) {
  const std::vector<TimedCall> calls = CallsOf(sweep, ranks);
  const int64_t elements = MostElements(calls);
  LS_RETURN_IF_ERROR(CheckMemory(elements * SizeOf(sweep.dtype), ranks));

  CpuAllocator allocator;
  std::vector<CallTensors> memory;
  for (int rank = 0; rank < ranks; ++rank) {
    memory.push_back(MakeRankMemory(allocator, sweep.dtype, elements));
  }
  Sweep one_round = sweep;
  one_round.seconds = sweep.seconds / kRounds;
  std::vector<Times> times(calls.size());
  for (int round = 1; round <= kRounds; ++round) {
    std::fprintf(stderr, "%d ranks, %zu calls: round %d of %d ...\n", ranks, calls.size(), round,
                 kRounds);
    MpiTimes theirs;
    if (!mpirun.empty()) {
      auto mpi_times = RunMpi(mpirun, one_round, ranks);
      if (absl::IsCancelled(mpi_times.status())) return mpi_times.status();
      if (mpi_times.ok()) {
        theirs = *std::move(mpi_times);
      } else {
        absl::PrintF("Open MPI is left out: %s\n", mpi_times.status().message());
        mpirun.clear();
      }
    }
    for (size_t i = 0; i < calls.size(); ++i) {
      KeepBest(SecondsOf(calls[i], theirs), times[i].open_mpi);
      const double limit = MeasureMemorySeconds(calls[i], memory, one_round.seconds);
      LS_ASSIGN_OR_RETURN(const double own, LocalSeconds(calls[i], memory, one_round.seconds));
      KeepBest(limit, times[i].limit);
      KeepBest(own, times[i].own);
      times[i].of_limits.push_back(limit / own);
    }
  }
  PrintHeader(sweep, ranks);
  for (size_t i = 0; i < calls.size(); ++i) PrintRow(calls[i], times[i]);
  PrintGoals(calls, times);
  return absl::OkStatus();
}

absl::StatusOr<int> RunBenchmark() {
  LS_ASSIGN_OR_RETURN(const Sweep sweep, SweepFromFlags());
  const auto mpirun = FindMpirun(absl::GetFlag(FLAGS_mpirun));
  if (!mpirun.ok()) {
    absl::PrintF("Open MPI is left out: %s\n", mpirun.status().message());
  }
  for (const int ranks : sweep.ranks) {
    LS_RETURN_IF_ERROR(RunCalls(sweep, ranks, mpirun.value_or("")));
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Times collectives, against the machine's memory and Open MPI; see "
                "docs/benchmarks.md.",
       .files = {__FILE__, lockstep::kSweepFlagsFile}},
      [](const auto&) { return lockstep::RunBenchmark(); });
}
