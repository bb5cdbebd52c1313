#pragma once

#include <string>

namespace lockstep {

// How long a step should take on the machine at hand, in seconds.
struct TimePrediction {
  // Why there is no prediction, in one line; empty: there is one.
  std::string missing;
  double step = 0;  // of the slowest rank
  // The parts of rank 0's step.
  double compute = 0;    // forward and backward
  double optimizer = 0;  // the update of the parameters and what leads to it, such as the norm
  double exposed = 0;    // communication that nothing hides
  double bubble = 0;     // waiting for other stages
};

}  // namespace lockstep
