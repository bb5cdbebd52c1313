#pragma once

#include <vector>

#include "tools/experiment/run_all.h"
#include "tools/experiment/run_record.h"

namespace lockstep {

// The runs of `single` that are still to be made so that each complete run has a reference: its
// batch may be cut in another way than that of the runs of `single` at hand (a mesh without data
// parallelism has one shard). They are the first of these, of the same workload, told to cut as
// the run does; of workloads without one there is none. records[i] is what runs[i] left.
std::vector<PlannedRun> MissingReferences(const std::vector<PlannedRun>& runs,
                                          const std::vector<RunRecord>& records);

}  // namespace lockstep
