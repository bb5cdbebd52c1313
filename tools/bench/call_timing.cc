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

// Of each of `count` calls in a row, on average.
absl::StatusOr<double> TimeBatch(const TimedCall& call, const CallTensors& tensors, int64_t count,
                                 RankCalls& calls) {
  LS_RETURN_IF_ERROR(calls.Barrier());
  const int64_t begin = NowNanos();
  for (int64_t i = 0; i < count; ++i) LS_RETURN_IF_ERROR(calls.Run(call, tensors));
  return calls.Max(SecondsSince(begin) / static_cast<double>(count));
}

}  // namespace

absl::StatusOr<double> TimeCall(const TimedCall& call, const CallTensors& tensors, double budget,
                                RankCalls& calls) {
  // Doubles the calls of a batch until it takes long enough to tell how many fill the budget. All
  // ranks see the same times and come to the same numbers.
  const double batch_seconds = budget / kBatches;
  int64_t count = 1;
  double best = 0;
  for (;; count *= 2) {
    LS_ASSIGN_OR_RETURN(best, TimeBatch(call, tensors, count, calls));
    if (best * static_cast<double>(count) >= batch_seconds / 8 || count >= kMostCalls) break;
  }
  count = std::clamp<int64_t>(static_cast<int64_t>(batch_seconds / best), 1, kMostCalls);

  double spent = 0;
  for (int batch = 0; batch < kLeastBatches || (batch < kBatches && spent < budget); ++batch) {
    LS_ASSIGN_OR_RETURN(const double seconds, TimeBatch(call, tensors, count, calls));
    spent += seconds * static_cast<double>(count);
    best = batch == 0 ? seconds : std::min(best, seconds);
  }
  return best;
}

absl::StatusOr<double> CheckAndTimeCall(const TimedCall& call, const CallTensors& tensors,
                                        double budget, RankCalls& calls) {
  FillTensors(call, calls.rank(), tensors);
  LS_RETURN_IF_ERROR(calls.Barrier());
  LS_RETURN_IF_ERROR(calls.Run(call, tensors));
  LS_RETURN_IF_ERROR(CheckOutput(call, calls.rank(), tensors));
  return TimeCall(call, tensors, budget, calls);
}

}  // namespace lockstep
