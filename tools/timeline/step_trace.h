#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep {

// What the ranks of a run did in one step, from its trace.
struct StepTrace {
  enum class Kind { kForward, kBackward, kOptimizer, kBubble };
  struct Phase {
    Kind kind;
    int64_t micro_batch;  // of the step's global batch; -1 where there is none
    double begin, end;    // seconds since the first rank began the step
  };
  int64_t step = 0;
  double seconds = 0;                     // until the last rank ended it
  std::vector<std::vector<Phase>> ranks;  // in order of time
};

// Reads a trace.json. `step`: by default the last one that is in it. InvalidArgument when the text
// is no trace, or does not have the step; `name` stands for it in messages.
absl::StatusOr<StepTrace> ReadStepTrace(const std::string& json, const std::string& name,
                                        std::optional<int64_t> step = std::nullopt);

}  // namespace lockstep
