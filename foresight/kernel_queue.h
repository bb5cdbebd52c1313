#pragma once

#include <algorithm>
#include <cmath>

#include "foresight/dialect.h"

namespace lockstep {

// The kernels of one direction (forward or backward). A device runs them one after the other, while
// its host launches them:
//
//   host    seconds to launch them all
//   device  seconds to run them all
//   gaps    seconds by which kernels are shorter than their launch
//
// If the host is slower, its time counts. Otherwise the device's time counts, and of the gaps the
// share `visible_gaps`, which the lead of the host does not hide. Ranks come late to each
// collective: by `steady_skew` for each doubling of their number, and by `skew`, of which less
// shows the farther the device lags behind the host.
class KernelQueue {
 public:
  explicit KernelQueue(const Dialect& dialect)
      : forward_(dialect.Fitted("host_forward")),
        backward_(dialect.Fitted("host_backward")),
        visible_(dialect.Fitted("visible_gaps")),
        skew_(dialect.Fitted("skew")),
        steady_skew_(dialect.Fitted("steady_skew")) {}

  void Kernel(double seconds, bool is_backward) {
    Add(seconds, is_backward ? backward_ : forward_);
  }
  // `share`: 1 for an all-reduce, and 1/2 for a reduce-scatter or an all-gather, which do half of
  // its work.
  void Collective(double seconds, int ranks, double share, bool is_backward) {
    Add(seconds, is_backward ? backward_ : forward_);
    steady_late_ += share * steady_skew_ * std::log2(ranks);
    late_ += share * skew_;
  }
  // The host is busy with something else.
  void Host(double seconds) {
    host_ += seconds;
    gaps_ += seconds;
  }
  // What a collective takes beside its own time where nothing hides it.
  double Beside(int ranks, double share) const {
    return share * (steady_skew_ * std::log2(ranks) + skew_);
  }

  // Seconds of what is in the queue, which is empty then.
  double Take() {
    double seconds = 0;
    if (device_ > 0) {
      const double late = steady_late_ + late_ * std::min(1.0, 3 * host_ / device_);
      seconds = std::max(host_, device_ + late + visible_ * gaps_);
    }
    host_ = device_ = gaps_ = late_ = steady_late_ = 0;
    return seconds;
  }

 private:
  void Add(double seconds, double launch) {
    host_ += launch;
    device_ += seconds;
    gaps_ += std::max(0.0, launch - seconds);
  }

  const double forward_, backward_, visible_, skew_, steady_skew_;
  double host_ = 0, device_ = 0, gaps_ = 0, late_ = 0, steady_late_ = 0;
};

}  // namespace lockstep
