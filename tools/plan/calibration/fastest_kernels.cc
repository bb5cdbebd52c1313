#include "tools/plan/calibration/fastest_kernels.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "foresight/measured_time.h"

namespace lockstep {
namespace {

// Kernels of undisturbed trainings are within this factor of what others foretell, most of them.
constexpr double kSlow = 1.3;
// The share of a training's kernels, by time, that is lost in a training worth another visit.
constexpr double kWorthwhile = 0.1;

}  // namespace

void FastestKernels::Add(size_t training, const std::vector<MeasuredKernel>& rows) {
  for (const MeasuredKernel& row : rows) {
    const auto [at, is_new] = fastest_.try_emplace(
        {row.kernel, row.dtype, row.ranks, row.threads, row.extents}, Fastest{row, training});
    if (is_new || at->second.row.seconds <= row.seconds) continue;
    at->second = {row, training};
  }
}

std::vector<MeasuredKernel> FastestKernels::Rows() const {
  std::vector<MeasuredKernel> rows;
  for (const auto& [key, fastest] : fastest_) rows.push_back(fastest.row);
  return rows;
}

std::vector<size_t> FastestKernels::Suspects() const {
  Measurements measured;
  measured.kernels = Rows();
  std::map<std::pair<int, int>, MeasuredKernelTime> times;  // by ranks and threads
  struct Total {
    double seconds = 0, lost = 0;
  };
  std::map<size_t, Total> totals;
  for (const auto& [key, fastest] : fastest_) {
    const MeasuredKernel& row = fastest.row;
    const std::pair<int, int> placement = {row.ranks, row.threads};
    auto time = times.find(placement);
    if (time == times.end()) {
      time = times.emplace(placement, MeasuredKernelTime(measured, row.ranks, row.threads)).first;
    }
    const std::optional<double> foretold = time->second.SecondsFromOthers(row);
    Total& total = totals[fastest.training];
    total.seconds += row.seconds;
    if (foretold && row.seconds > kSlow * *foretold) total.lost += row.seconds - *foretold;
  }
  std::vector<std::pair<double, size_t>> suspects;
  for (const auto& [training, total] : totals) {
    if (total.lost > kWorthwhile * total.seconds) suspects.emplace_back(-total.lost, training);
  }
  std::sort(suspects.begin(), suspects.end());
  std::vector<size_t> trainings;
  for (const auto& [lost, training] : suspects) trainings.push_back(training);
  return trainings;
}

}  // namespace lockstep
