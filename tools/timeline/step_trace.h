#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/draw/palette.h"

namespace lockstep {

// What the ranks of a run did in one step, from its trace.
struct StepTrace {
  // What phases are, by the names of traces (core/report/step_timer.h).
  static constexpr const WorkKind* kWork[] = {&kForwardWork, &kBackwardWork, &kOptimizerWork,
                                              &kDataWork, &kBubbleWork};
  struct Phase {
    const WorkKind* work;
    int64_t micro_batch;  // of the step's global batch; -1 where there is none
    double begin, end;    // seconds since the first rank began the step
  };
  // A collective or message.
  struct Call {
    std::string name;  // "all_reduce gradients"
    int64_t bytes;
    double begin, end;
  };
  // What was live from here to the next sample.
  struct Memory {
    double seconds;
    std::map<std::string, double> bytes;  // by class
  };
  // Each in order of time.
  struct Rank {
    std::vector<Phase> phases;
    std::vector<Call> calls;
    std::vector<Memory> memory;
  };
  int64_t step = 0;
  double seconds = 0;  // until the last rank ended it
  std::vector<Rank> ranks;
};

// Reads a trace.json. `step`: by default the last one that is in it. InvalidArgument when the text
// is no trace, or does not have the step; `name` stands for it in messages.
absl::StatusOr<StepTrace> ReadStepTrace(const std::string& json, const std::string& name,
                                        std::optional<int64_t> step = std::nullopt);

// "forward of micro-batch 3", "optimizer"
std::string LabelOf(const StepTrace::Phase& phase);

}  // namespace lockstep
