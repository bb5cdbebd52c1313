#include "foresight/step_time.h"

#include "core/base/status.h"
#include "foresight/step_walk.h"

namespace lockstep {

absl::StatusOr<StepTime> StepTime::Create(std::shared_ptr<const RecordedRun> run,
                                          const Dialect& dialect, const Cluster& cluster) {
  const int ranks = run->settings.mesh.ranks();
  if (ranks > cluster.devices()) {
    return InvalidArgument("cluster ", cluster.name, " has ", cluster.devices(),
                           " devices, and the mesh ", ranks, " ranks");
  }
  LS_ASSIGN_OR_RETURN(LoweredStep lowered, LowerStep(*run, dialect, cluster));
  return StepTime(std::move(run), std::move(lowered));
}

absl::StatusOr<std::vector<KernelCost>> StepTime::Costs(const Dialect& dialect) const {
  DialectContext nothing_recomputed = lowered_.context;
  nothing_recomputed.recomputed.clear();
  std::vector<KernelCost> costs;
  costs.reserve(lowered_.priced.size());
  for (const LoweredStep::Priced& priced : lowered_.priced) {
    LS_ASSIGN_OR_RETURN(
        costs.emplace_back(),
        dialect.CostOf(priced.call, priced.in_backward ? nothing_recomputed : lowered_.context,
                       priced.repeats));
  }
  return costs;
}

StepEstimate StepTime::Estimate(const std::vector<KernelCost>& costs, const Dialect& dialect,
                                const Cluster& cluster, const CommTime& network,
                                Timeline timeline) const {
  return WalkStep(lowered_, run_->settings, costs, dialect, cluster, network, timeline);
}

absl::StatusOr<StepEstimate> StepTime::Estimate(const Dialect& dialect, const Cluster& cluster,
                                                const CommTime& network, Timeline timeline) const {
  LS_ASSIGN_OR_RETURN(const std::vector<KernelCost> costs, Costs(dialect));
  return Estimate(costs, dialect, cluster, network, timeline);
}

DialectMemory StepTime::Memory(const std::vector<KernelCost>& costs, const Dialect& dialect, int pp,
                               const DividedState& divided) const {
  return MemoryOf(*run_, lowered_, costs, dialect, pp, divided);
}

}  // namespace lockstep
