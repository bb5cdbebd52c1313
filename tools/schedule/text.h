// A schedule in words and numbers.

#pragma once

#include <string>
#include <vector>

#include "strategies/schedules/schedule.h"
#include "strategies/schedules/simulation.h"

namespace lockstep {

struct TimedSchedule {
  const Schedule& schedule;
  const std::vector<StageCosts>& costs;  // by stage
  double transfer = 0;
  Simulation simulation;  // of these
};

// "1f1b: 4 ranks, 8 micro-batches", "interleaved_1f1b: 4 ranks with 2 stages each, 8 micro-batches"
std::string ScheduleTitle(const Schedule& schedule);

// The time of the shortest action.
double ShortestAction(const Simulation& simulation);

// The ranks' rows against time, to scale: an action has its name where it begins and "=" until its
// end, a rank that waits a dot for each unit of time, the shortest action's.
std::string GridText(const TimedSchedule& timed);

// "bubble 27.3 % of all ranks' time; in closed form (p-1)/(m+p-1) = 27.3 %"; the latter where there
// is one and all stages cost the same.
std::string BubbleText(const TimedSchedule& timed);

// A line a rank: its stages, how long it works and waits, and the most micro-batches whose
// activations it keeps at a time.
std::string RankTable(const TimedSchedule& timed);

// All of it, for the terminal.
std::string ScheduleReport(const TimedSchedule& timed);

}  // namespace lockstep
