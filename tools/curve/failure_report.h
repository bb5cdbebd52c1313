#pragma once

#include <string>
#include <vector>

#include "core/report/metrics.h"
#include "tools/curve/strategy_check.h"
#include "tools/report/report.h"

namespace lockstep {

// What is shown when a curve test fails: which of the workload's strategies moved from the kept
// curve, where and how far, what that says, and all curves on top of each other with their relative
// differences to the kept one below.
Report FailureReport(const std::string& title, const std::vector<LossPoint>& golden,
                     const std::vector<HeldCurve>& curves, double tolerance);

}  // namespace lockstep
