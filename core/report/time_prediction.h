#pragma once

#include <string>

namespace lockstep {

// How long a step should take on the machine at hand, in seconds.
struct TimePrediction {
  // Why there is no prediction, in one line; empty: there is one.
  std::string missing;
  double step = 0;  // of the slowest rank
  // Of rank 0, which the step is made of: forward and backward; the optimizer; communication that
  // nothing hides; waiting for other stages.
  double compute = 0, optimizer = 0, exposed = 0, bubble = 0;
};

}  // namespace lockstep
