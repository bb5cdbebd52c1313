#include "tools/bench/call_timing.h"

#include <algorithm>  // std::clamp, std::min
#include <cstdint>

#include "core/base/clock.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

constexpr int kBatches = 5;       // that the budget is divided into
constexpr int kLeastBatches = 3;  // that are made however long they take
constexpr int64_t kMostCalls = 1'000'000;

// Seconds of each of `count` calls in a row, on average.
absl::StatusOr<double> TimeBatch(const RunCall& run, int64_t count, const MaxOverRanks& max) {
  LS_RETURN_IF_ERROR(max(0).status());  // all begin together
  const int64_t begin = NowNanos();
  for (int64_t i = 0; i < count; ++i) LS_RETURN_IF_ERROR(run());
  return max(SecondsSince(begin) / static_cast<double>(count));
}

}  // namespace

MaxOverRanks MaxOver(Communicator& comm) {
  return [&comm](double value) -> absl::StatusOr<double> {
    CpuAllocator allocator;
    const Tensor x = Tensor::Empty(allocator, {1}, DType::kF64, MemoryClass::kCommunication);
    *x.data<double>() = value;
    LS_RETURN_IF_ERROR(comm.AllReduce(x, x, ReduceOp::kMax, "benchmark").Wait());
    return *x.data<double>();
  };
}

absl::StatusOr<double> TimeCall(const RunCall& run, double budget, const MaxOverRanks& max) {
  // Doubles the calls of a batch until it takes long enough to tell how many fill the budget. All
  // ranks see the same times and come to the same numbers.
  const double batch_seconds = budget / kBatches;
  int64_t count = 1;
  double best = 0;
  for (;; count *= 2) {
    LS_ASSIGN_OR_RETURN(best, TimeBatch(run, count, max));
    if (best * static_cast<double>(count) >= batch_seconds / 8 || count >= kMostCalls) break;
  }
  count = std::clamp<int64_t>(static_cast<int64_t>(batch_seconds / best), 1, kMostCalls);

  double spent = 0;
  for (int batch = 0; batch < kLeastBatches || (batch < kBatches && spent < budget); ++batch) {
    LS_ASSIGN_OR_RETURN(const double seconds, TimeBatch(run, count, max));
    spent += seconds * static_cast<double>(count);
    best = batch == 0 ? seconds : std::min(best, seconds);
  }
  return best;
}

absl::StatusOr<double> CheckAndTimeCall(const TimedCall& call, int rank, const CallTensors& tensors,
                                        const RunCall& run, double budget,
                                        const MaxOverRanks& max) {
  FillTensors(call, rank, tensors);
  LS_RETURN_IF_ERROR(max(0).status());  // all have filled theirs
  LS_RETURN_IF_ERROR(run());
  LS_RETURN_IF_ERROR(CheckOutput(call, rank, tensors));
  return TimeCall(run, budget, max);
}

}  // namespace lockstep
