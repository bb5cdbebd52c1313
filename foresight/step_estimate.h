#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

// Whether an estimate keeps what each rank does when.
enum class Timeline { kLeaveOut, kKeep };

// What a rank does for a while.
struct Interval {
  enum class Kind : uint8_t {
    kCompute,        // kernels, and the collectives along tp between them
    kOptimizer,      // the update of the parameters
    kCommunication,  // waits for a collective or a message that is on its way
    kBubble,         // waits for another stage that has not begun to send
  };
  Kind kind = Kind::kCompute;
  double begin = 0, end = 0;  // seconds from the beginning of the step
  int label = -1;             // of communication: an index into StepEstimate::labels
};

// Where the step of a rank goes, in seconds.
struct RankEstimate {
  double compute = 0, optimizer = 0, bubble = 0;
  std::map<std::string, double> exposed = {};  // communication that nothing hides, by label
  // Both are empty without Timeline::kKeep.
  std::vector<Interval> timeline = {};      // without gaps
  std::vector<double> stretch_begins = {};  // of RecordedRun::Stretches, from the step's beginning
};

struct StepEstimate {
  double seconds = 0;
  std::vector<RankEstimate> ranks = {};  // by place along pp
  std::vector<std::string> labels = {};
};

}  // namespace lockstep
