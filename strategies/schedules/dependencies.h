#pragma once

#include <vector>

#include "strategies/schedules/schedule.h"

namespace lockstep {

// What must have been done before an action can: the forward of the stage before and the backward
// (or its input half) of the stage behind, for the same micro-batch; and, on its own stage, the
// forward before a backward and the input half before the weights'.
std::vector<Action> DependenciesOf(const Schedule& schedule, const Action& action);

}  // namespace lockstep
