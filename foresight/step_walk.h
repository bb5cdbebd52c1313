#pragma once

#include <vector>

#include "core/config/settings.h"
#include "foresight/cluster.h"
#include "foresight/comm_time.h"
#include "foresight/dialect.h"
#include "foresight/lowered_step.h"
#include "foresight/step_estimate.h"

namespace lockstep {

// Lets all ranks along pp go through their stretches together: each takes the time of its kernels,
// and waits for the others where it must. `costs` are those of the step's kernels.
StepEstimate WalkStep(const LoweredStep& step, const Settings& settings,
                      const std::vector<KernelCost>& costs, const Dialect& dialect,
                      const Cluster& cluster, const CommTime& network, Timeline timeline);

}  // namespace lockstep
