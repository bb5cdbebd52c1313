// The tables of a comparison, a row a run that came to its end.

#pragma once

#include <string>

#include "tools/compare/comparison.h"
#include "tools/report/report.h"

namespace lockstep {

// Ranks, how the batch is cut, the loss and how far it is from the reference's, validation.
Table ResultTable(const ComparedWorkload& workload);

// How many parameters are trained, and the bytes of a checkpoint. No row where all runs train all.
Table TrainedTable(const ComparedWorkload& workload);

// Throughput of all ranks together, and where the time of a step went. Phases that no run has, such
// as the bubble where there is no pipeline, are left out.
Table TimeTable(const ComparedWorkload& workload);

// What the rank with most holds, measured beside predicted. Classes that no run has are left out.
Table MemoryTable(const ComparedWorkload& workload);

// Of which classes that table has no prediction, and why; empty: of none.
std::string WhyNotPredicted(const ComparedWorkload& workload);

// What a rank sends in a step by operation, measured beside predicted. No row where no run sends
// anything.
Table TrafficTable(const ComparedWorkload& workload);

// The loss scale of a run over its steps as one line of block characters, each an eighth of the way
// from the lowest to the highest power of two, with both ends and the steps that were skipped:
//
//   65536 ▇▇██▇▆▆ 32768, lowest 16384, highest 131072; skipped 2 steps: 812, 815
//
// Empty where losses are not scaled.
std::string LossScaleLine(const RunRecord& run);

// These lines; no row where losses are not scaled.
Table LossScaleTable(const ComparedWorkload& workload);

}  // namespace lockstep
