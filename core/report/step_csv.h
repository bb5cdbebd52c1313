// steps.csv, the companion of losses.csv: a header `step,learning_rate,gradient_norm`, then one row
// a step.

#pragma once

#include <cstdint>
#include <string>

#include "core/report/results.h"
#include "core/report/row_file.h"

namespace lockstep {

extern const RowFormat kStepsCsv;

// The row of a step, with nine significant digits; a norm may read inf or nan.
std::string StepRow(int64_t step, const StepResult& result);

}  // namespace lockstep
