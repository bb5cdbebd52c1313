#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/report/metrics.h"
#include "core/report/rank_report.h"
#include "core/run/guard/check_schedule.h"
#include "core/run/leg/rank_in_leg.h"

namespace lockstep {

// Holds the state behind a change of mesh to the state before it (guard.every), by hashes of all
// whole tensors, which are the same on each mesh. Costs two passes over the state for each change.
class MoveGuard {
 public:
  // The tools outlive it.
  MoveGuard(const CheckSchedule& schedule, const RankTools& tools)
      : schedule_(schedule), tools_(tools) {}

  // Before the state moves. Called by all ranks of the leg, with null by those that it leaves idle.
  absl::Status Begin(RankInLeg* here);

  // When the state has moved. Called by all ranks of the run, with null by those that the new leg
  // leaves idle. DataLoss, which rank 0 tells, names the step and a tensor whose bits are others.
  absl::Status End(const MeshChange& change, RankInLeg* here);

 private:
  // None where nothing is checked, or the rank is idle.
  absl::StatusOr<std::vector<TensorHash>> HashesOf(RankInLeg* here) const;

  const CheckSchedule schedule_;
  const RankTools& tools_;
  std::vector<TensorHash> before_;
};

}  // namespace lockstep
