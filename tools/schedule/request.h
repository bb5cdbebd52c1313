// What the user asks of the program.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/flags.h"
#include "strategies/schedules/schedule.h"
#include "strategies/schedules/simulation.h"

namespace lockstep {

struct ScheduleRequest {
  Schedule schedule;                   // valid
  std::vector<StageCosts> costs = {};  // by stage
  double transfer = 0;
  std::string svg;  // the file to write, from where the user stands
  std::string csv;  // likewise; empty: none
};

// What the program's command line accepts.
ProgramFlags ScheduleFlags();

// Reads the flags, once they are parsed, and the CSV file that they may name. A schedule that
// cannot be made, or that Validate refuses, is an error that names the cell.
absl::StatusOr<ScheduleRequest> ScheduleRequestFromFlags();

}  // namespace lockstep
