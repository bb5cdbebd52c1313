// What a plan shows, as tables and paragraphs (tools/report).

#pragma once

#include <cstddef>
#include <vector>

#include "tools/plan/planner.h"
#include "tools/plan/scenario.h"
#include "tools/report/report.h"

namespace lockstep {

// The runs in the order in which they are given: time of a step, tokens or samples a second, model
// FLOPs utilisation, memory of the fullest rank, exposed communication and bubble of the busiest
// rank. Leaves out refused runs. Shows at most `rows` runs.
Table RunsTable(const std::vector<Forecast>& runs, size_t rows);

// The same runs: peaks of the fullest rank's memory by class, where any run has bytes of it.
Table RunsMemoryTable(const std::vector<Forecast>& runs, size_t rows);

// The same runs: what the busiest rank waits for, by label of the calls, in percent of the step.
// Has only the column of runs where none waits for communication.
Table RunsCommunicationTable(const std::vector<Forecast>& runs, size_t rows);

// Why runs are refused: each reason once, with the number of runs and the first of them.
Table RefusedTable(const std::vector<Forecast>& runs);

// The best run of each scenario. If `budget` (FLOPs) is above 0, also the time and the device-hours
// in which it spends them.
Table BestTable(const std::vector<PlannedScenario>& scenarios, double budget);

// Where the time of each rank along pp goes, in percent of the step, and its exposed communication
// by label.
Table RanksTable(const Forecast& run);

// Peaks of the fullest rank's memory by class.
Table MemoryTable(const Forecast& run);

// Which resource limits the step.
Table FasterTable(const Explanation& explanation);

// The run with one option changed, `changed`, beside the run itself.
Table ChangesTable(const Forecast& run, const std::vector<Forecast>& changed);

// Says which run fits where `run` does not: `fitting`, the fastest of those with one option changed
// (kOne) or with several; null: none of them fits.
enum class Changes { kOne, kSeveral };
Paragraph WayToFit(const Forecast& run, const Forecast* fitting, Changes changes);

// Where the time goes, what limits it, and whether the run fits, in words. `room`: bytes of a
// device.
std::vector<Paragraph> Verdict(const Explanation& explanation, double room);

}  // namespace lockstep
