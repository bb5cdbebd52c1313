#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/report/step_timer.h"

namespace lockstep {

// A rank that took longer for its own work than the other ranks with the same work.
struct Straggler {
  int64_t step = 0;  // the last one of the window, counted from 0
  int32_t rank = 0;
  Phase part = Phase::kOther;  // where it lost most
  double factor = 0;           // its time over the median of the others'
  double seconds = 0;          // what it took longer than that median, a step

  // A row of metrics.jsonl, JSON without the end of the line.
  std::string ToRow() const;
};

// A rank that was a straggler in some windows of a run.
struct SlowRank {
  int64_t windows = 0;
  Straggler worst;  // the largest factor
};

// All stragglers of a run, by rank, from its metrics.jsonl: those of earlier attempts too, up to
// the checkpoints that the run went on from. Steps that were trained again count once. Passes over
// rows that cannot be read; the error of a file that cannot be read.
absl::StatusOr<std::vector<SlowRank>> ReadSlowRanks(const std::string& metrics_path);

}  // namespace lockstep
