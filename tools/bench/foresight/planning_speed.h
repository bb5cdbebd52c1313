#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tools/report/report.h"

namespace lockstep {

// How long plans take, and their memory, beside the goals: one mesh of 16,384 devices, and all
// meshes of a model of 175 billion parameters on 1,024. `plan` is the program, //tools/plan.
absl::StatusOr<Table> PlanningSpeed(const std::string& plan);

}  // namespace lockstep
