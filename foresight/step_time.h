#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "foresight/cluster.h"
#include "foresight/comm_time.h"
#include "foresight/dialect.h"
#include "foresight/dialect_memory.h"
#include "foresight/lowered_step.h"
#include "foresight/recorded_run.h"
#include "foresight/step_estimate.h"

namespace lockstep {

// The time of a step, from what was recorded of it. Each stretch is folded into few numbers, and
// then all ranks along pp go through their stretches together:
//
// - Kernels run one after the other on a device, which the host feeds (kernel_queue.h).
// - Collectives along tp that are waited for at once stand among the kernels.
// - Other collectives run on a stream of their own, one after the other; where the dialect overlaps
//   nothing, or cores that compute move the data, they begin when they are waited for.
// - Messages between stages leave in order, one at a time for each edge and direction. Sender and
//   receiver are busy with each for the dialect's `message_seconds`, if it has them.
//
// Numbers of dialect and cluster may change from call to call, as fits do, and rules may not: what
// depends on neither is worked out once.
class StepTime {
 public:
  // InvalidArgument where the dialect has no rule for what was recorded, or the cluster has too few
  // devices. Later clusters have as many devices in a node.
  static absl::StatusOr<StepTime> Create(std::shared_ptr<const RecordedRun> run,
                                         const Dialect& dialect, const Cluster& cluster);

  // What the kernels of the step are, for Estimate: depends on the dialect's numbers.
  absl::StatusOr<std::vector<KernelCost>> Costs(const Dialect& dialect) const;

  StepEstimate Estimate(const std::vector<KernelCost>& costs, const Dialect& dialect,
                        const Cluster& cluster, const CommTime& network,
                        Timeline timeline = Timeline::kLeaveOut) const;
  absl::StatusOr<StepEstimate> Estimate(const Dialect& dialect, const Cluster& cluster,
                                        const CommTime& network,
                                        Timeline timeline = Timeline::kLeaveOut) const;

  // As MemoryOf (dialect_memory.h).
  DialectMemory Memory(const std::vector<KernelCost>& costs, const Dialect& dialect, int pp,
                       const DividedState& divided = {}) const;

  const RecordedRun& run() const { return *run_; }

 private:
  StepTime(std::shared_ptr<const RecordedRun> run, LoweredStep lowered)
      : run_(std::move(run)), lowered_(std::move(lowered)) {}

  std::shared_ptr<const RecordedRun> run_;
  LoweredStep lowered_;
};

}  // namespace lockstep
