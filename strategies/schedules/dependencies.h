#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "strategies/schedules/schedule.h"

namespace lockstep {

// What must have been done before an action can: the forward of the stage before and the backward
// (or its input half) of the stage behind, for the same micro-batch; and, on its own stage, the
// forward before a backward and the input half before the weights'.
std::vector<Action> DependenciesOf(const Schedule& schedule, const Action& action);

// Goes through the lists of all ranks as far as they come: calls `run` for each action, with what
// it needs, when that has been run. Returns how many of its actions each rank has run.
std::vector<size_t> RunInOrder(
    const Schedule& schedule,
    const std::function<void(size_t rank, const Action&, const std::vector<Action>& needed)>& run);

}  // namespace lockstep
