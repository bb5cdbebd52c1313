#pragma once

#include "core/probe/probed_run.h"
#include "tools/divergence/divergence.h"
#include "tools/divergence/judgement.h"
#include "tools/report/report.h"

namespace lockstep {

// What two runs have in common and where they part, for a terminal and as a page. `judgement` is of
// the first difference, and not read where there is none.
Report DivergenceReport(const ProbedRun& a, const ProbedRun& b, const Divergence& divergence,
                        const Judgement& judgement);

}  // namespace lockstep
