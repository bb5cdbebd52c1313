#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "strategies/schedules/schedule.h"

namespace lockstep {

// A number for each action that a schedule of these stages and micro-batches may have, from 0. Its
// stage and micro-batch are among the schedule's.
inline size_t IndexOf(const Schedule& schedule, const Action& action) {
  const auto kind = static_cast<size_t>(action.kind), stage = static_cast<size_t>(action.stage);
  return (kind * static_cast<size_t>(schedule.stages()) + stage) *
             static_cast<size_t>(schedule.micro_batches) +
         static_cast<size_t>(action.micro_batch);
}
// How many numbers there are.
inline size_t MostActions(const Schedule& schedule) {
  return IndexOf(schedule, {ActionKind::kWeightGradient, schedule.stages(), 0});
}

// What must have been done before an action can: the forward of the stage before and the backward
// (or its input half) of the stage behind, for the same micro-batch; and, on its own stage, the
// forward before a backward and the input half before the weights'.
class Dependencies {
 public:
  // The schedule outlives this. Its actions' stages and micro-batches exist.
  explicit Dependencies(const Schedule& schedule);
  std::vector<Action> Of(const Action& action) const;

 private:
  const Schedule& schedule_;
  std::vector<bool> is_listed_;  // by IndexOf
};

// Goes through the lists of all ranks as far as they come: calls `run` for each action, with what
// it needs, when that has been run. Returns how many of its actions each rank has run.
std::vector<size_t> RunInOrder(
    const Schedule& schedule,
    const std::function<void(size_t rank, const Action&, const std::vector<Action>& needed)>& run);

}  // namespace lockstep
