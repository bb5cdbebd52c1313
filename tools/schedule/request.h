// What the user asks of the program.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "strategies/schedules/schedule.h"
#include "strategies/schedules/simulation.h"

namespace lockstep {

struct ScheduleRequest {
  bool help = false;
  Schedule schedule;                   // valid
  std::vector<StageCosts> costs = {};  // by stage
  double transfer = 0;
  std::string svg;  // the file to write, from where the user stands
  std::string csv;  // likewise; empty: none
};

// Reads the arguments behind the program's name, and the CSV file that they may name. A schedule
// that cannot be made, or that Validate refuses, is an error that names the cell.
absl::StatusOr<ScheduleRequest> ParseScheduleRequest(const std::vector<std::string>& command_line);

// What --help prints.
std::string ScheduleUsage();

}  // namespace lockstep
