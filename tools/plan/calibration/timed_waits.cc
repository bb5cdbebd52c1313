#include "tools/plan/calibration/timed_waits.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "core/base/clock.h"
#include "core/base/parallel.h"
#include "core/base/status.h"
#include "core/comm/communicator.h"
#include "core/tensor/allocator.h"
#include "tools/plan/calibration/training_kernels.h"

namespace lockstep {
namespace {

// Rounds of kernels between two meetings.
constexpr int kRounds[] = {1, 4, 16, 64};
constexpr size_t kLeastTimes = 5;
// A machine file has no zeros.
constexpr double kLeastSeconds = 1e-9;

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

absl::StatusOr<std::vector<MeasuredWait>> TimeWaits(RankHandle& handle, Transport transport,
                                                    double seconds) {
  SetThreads(1);
  TrainingKernels kernels;
  const auto meet = [&] { return handle.comm().Barrier("calibration").Wait(); };
  // The median over `times` repetitions of the seconds that `rounds` rounds take.
  const auto time = [&](int rounds, size_t times, bool meets) -> absl::StatusOr<double> {
    std::vector<double> each;
    LS_RETURN_IF_ERROR(meet());
    while (each.size() < times) {
      const int64_t begin = NowNanos();
      kernels.Run(rounds);
      if (meets) LS_RETURN_IF_ERROR(meet());
      each.push_back(SecondsSince(begin));
    }
    return MedianOf(std::move(each));
  };
  LS_RETURN_IF_ERROR(time(1, kLeastTimes, /*meets=*/true).status());  // warms up
  LS_ASSIGN_OR_RETURN(const double barrier, time(0, 1000, /*meets=*/true));
  std::vector<MeasuredWait> rows;
  // Rank 0 says how often all repeat.
  CpuAllocator allocator;
  const Tensor budget = Tensor::Empty(allocator, {1}, DType::kF64, MemoryClass::kCommunication);
  for (const int rounds : kRounds) {
    LS_ASSIGN_OR_RETURN(const double once, time(rounds, kLeastTimes, /*meets=*/false));
    *budget.data<double>() = seconds / static_cast<double>(std::size(kRounds)) / (2 * once);
    LS_RETURN_IF_ERROR(handle.comm().Broadcast(budget, 0, "calibration").Wait());
    const size_t times =
        std::clamp(static_cast<size_t>(*budget.data<double>()), kLeastTimes, size_t{2000});
    LS_ASSIGN_OR_RETURN(const double alone, time(rounds, times, /*meets=*/false));
    LS_ASSIGN_OR_RETURN(const double together, time(rounds, times, /*meets=*/true));
    rows.push_back({.transport = transport,
                    .ranks = handle.size(),
                    .apart = alone,
                    .seconds = std::max(kLeastSeconds, together - alone - barrier)});
  }
  return rows;
}

}  // namespace lockstep
