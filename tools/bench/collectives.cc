// How fast collectives are, against what memory could do and against Open MPI on the same calls.
//
//   ./bazelw run //tools/bench:collectives
//   ./bazelw run //tools/bench:collectives -- --operations all_reduce --ranks 2,4 --in_place
//
// Each row is one operation on one size. Time is what a call takes among many in a row; algorithm
// and bus bandwidth are nccl-tests'; the limit is the time that memory needs for the bytes that
// must move (memory_limit.h), measured on the same memory in turn with the calls; the ratio says
// how many times as long Open MPI takes as the backend.

#include <unistd.h>  // sysconf

#include <algorithm>  // std::min
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/comm/launch.h"
#include "core/tensor/allocator.h"
#include "tools/bench/call_timing.h"
#include "tools/bench/communicator_calls.h"
#include "tools/bench/core_binding.h"
#include "tools/bench/memory_limit.h"
#include "tools/bench/mpi_peer.h"
#include "tools/bench/sweep.h"

ABSL_FLAG(std::string, mpirun, "", "Open MPI's mpirun, to compare with; empty: the one on PATH");

namespace lockstep {
namespace {

// The limit and the backend are measured in turn, and the best of each counts: a machine's
// neighbours slow down now the one and now the other.
constexpr int kRounds = 3;

// A backend of Lockstep's, by the time that it takes.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;
  virtual absl::StatusOr<double> Seconds(const TimedCall& call) = 0;
};

// Ranks are threads.
class LocalBackend final : public Backend {
 public:
  // `memory`, a rank's each, outlives this.
  LocalBackend(absl::Span<const RankMemory> memory, double budget)
      : memory_(memory), budget_(budget) {}

  std::string name() const override { return "local"; }

  absl::StatusOr<double> Seconds(const TimedCall& call) override {
    double seconds = 0;
    LS_RETURN_IF_ERROR(RunRanks(call.ranks, {}, [&](RankHandle& handle) -> absl::Status {
      const int rank = handle.rank();
      BindRank(rank, call.ranks);
      CommunicatorCalls calls(handle.comm());
      LS_ASSIGN_OR_RETURN(
          const double own,
          CheckAndTimeCall(call, TensorsOf(call, rank, memory_[static_cast<size_t>(rank)]), budget_,
                           calls));
      if (rank == 0) seconds = own;
      return absl::OkStatus();
    }));
    return seconds;
  }

 private:
  const absl::Span<const RankMemory> memory_;
  const double budget_;
};

// An error if the ranks' memory would be more than the machine has.
absl::Status CheckMemory(int64_t bytes, int ranks) {
  const int64_t needed = bytes * ranks * 2;  // inputs and outputs
  const int64_t there = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  if (needed <= there / 10 * 9) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      ranks, " ranks with payloads of up to ", FormatBytes(bytes), " need ", FormatBytes(needed),
      " of memory; this machine has ", FormatBytes(there), ". Use a smaller --max_bytes"));
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

void PrintRow(const TimedCall& call, const Backend& backend, double seconds, double limit,
              double theirs) {
  const double bandwidth = static_cast<double>(call.bytes()) / seconds * 1e-9;
  std::printf("%-15s %-10s %10s %10s %9.3f %9.3f %10s %9.2f", TimedName(call.operation).c_str(),
              backend.name().c_str(), FormatBytes(call.bytes()).c_str(),
              FormatDuration(seconds).c_str(), bandwidth,
              bandwidth * BusFactor(call.operation, call.ranks), FormatDuration(limit).c_str(),
              limit / seconds);
  if (theirs > 0) {
    std::printf(" %10s %6.2f\n", FormatDuration(theirs).c_str(), theirs / seconds);
  } else {
    std::printf(" %10s %6s\n", "-", "-");
  }
  std::fflush(stdout);
}

// All calls with one number of ranks. Empty `mpirun`: Open MPI is left out.
absl::Status RunCalls(const Sweep& sweep, int ranks, const std::string& mpirun) {
  const std::vector<TimedCall> calls = CallsOf(sweep, ranks);
  const int64_t elements = MostElements(calls);
  LS_RETURN_IF_ERROR(CheckMemory(elements * SizeOf(sweep.dtype), ranks));

  MpiTimes theirs;
  if (!mpirun.empty()) {
    std::fprintf(stderr, "Open MPI makes %zu calls with %d ranks ...\n", calls.size(), ranks);
    auto times = RunMpi(mpirun, sweep, ranks);
    if (absl::IsCancelled(times.status())) return times.status();
    if (times.ok()) {
      theirs = *std::move(times);
    } else {
      std::printf("Open MPI is left out: %s\n", std::string(times.status().message()).c_str());
    }
  }

  CpuAllocator allocator;
  std::vector<RankMemory> memory;
  for (int rank = 0; rank < ranks; ++rank) {
    memory.push_back(MakeRankMemory(allocator, sweep.dtype, elements));
  }
  LocalBackend local(memory, sweep.seconds / kRounds);
  PrintHeader(sweep, ranks);
  for (const TimedCall& call : calls) {
    double limit = 0, seconds = 0;
    for (int round = 0; round < kRounds; ++round) {
      const double memory_only = MeasureMemorySeconds(call, memory, sweep.seconds / kRounds);
      LS_ASSIGN_OR_RETURN(const double own, local.Seconds(call));
      limit = round == 0 ? memory_only : std::min(limit, memory_only);
      seconds = round == 0 ? own : std::min(seconds, own);
    }
    PrintRow(call, local, seconds, limit, theirs.Of(call));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> RunBenchmark() {
  LS_ASSIGN_OR_RETURN(const Sweep sweep, SweepFromFlags());
  const auto mpirun = FindMpirun(absl::GetFlag(FLAGS_mpirun));
  if (!mpirun.ok()) {
    std::printf("Open MPI is left out: %s\n", std::string(mpirun.status().message()).c_str());
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
