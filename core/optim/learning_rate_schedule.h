#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

// The learning rate of each step: linear warm-up, then one of the usual ways down.
struct LearningRateSchedule {
  enum class Kind {
    kConstant,
    kCosine,  // half a cosine from the peak to `floor` over the steps after warm-up
    kLinear,  // a straight line from the peak to `floor` over the same steps
    kStep,    // times `factor` at each of `milestones`
    // The peak, and over the last `decay_steps` a straight line to `floor` (warm-up, stable, decay;
    // Hu et al., "MiniCPM", 2024).
    kWarmupStableDecay,
  };

  Kind kind = Kind::kConstant;
  double peak = 1e-3;
  double floor = 0;
  int64_t warmup_steps = 0;  // step s of them has the rate peak * (s + 1) / (warmup_steps + 1)
  int64_t total_steps = 1;
  int64_t decay_steps = 0;
  std::vector<int64_t> milestones = {};
  double factor = 0.1;

  // The rate of step `step`, counted from 0.
  double RateAt(int64_t step) const;
};

}  // namespace lockstep
