#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "foresight/measurements.h"

namespace lockstep {

// A few steps of a model, run to see how long its kernels take.
struct TrainingToTime {
  std::vector<std::string> assignments;  // "key=value": the whole configuration
  int ranks = 1;                         // that train at the same time
  int threads = 1;                       // of each
  // The ranks divide each layer among them (mesh.tp), in place of training each for itself.
  bool together = false;
};

// Trains for about `seconds` seconds behind two steps that warm up, and returns the times of the
// kernels of one rank: as training calls them, with what the caches hold then, while the other
// ranks compute too. What the engine does between kernels is divided among them, less what the rank
// waited for others. Kernels that make no difference to the step are left out.
absl::StatusOr<std::vector<MeasuredKernel>> TimeTraining(const TrainingToTime& training,
                                                         double seconds);

}  // namespace lockstep
