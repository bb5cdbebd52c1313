#pragma once

#include <cstddef>
#include <deque>
#include <numeric>

namespace lockstep {

// Whether losses jump: whether a step's loss is more than `factor` times the mean of the losses
// before it, of which the last ones count. Says nothing of the first few steps.
class LossWatch {
 public:
  // factor: 0 for none.
  explicit LossWatch(double factor) : factor_(factor) {}

  // The mean of the losses that the next one is compared with; 0 while there are too few.
  double mean() const {
    if (losses_.size() < kLeast) return 0;
    return std::accumulate(losses_.begin(), losses_.end(), 0.0) /
           static_cast<double>(losses_.size());
  }

  // Takes the loss of a step, which is finite. Returns whether it jumps; then it joins no mean.
  bool Jumps(double loss) {
    const double before = mean();
    if (factor_ > 0 && before > 0 && loss > factor_ * before) return true;
    losses_.push_back(loss);
    if (losses_.size() > kMost) losses_.pop_front();
    return false;
  }

 private:
  static constexpr size_t kLeast = 4, kMost = 16;

  const double factor_;
  std::deque<double> losses_;  // the last ones, oldest first
};

}  // namespace lockstep
