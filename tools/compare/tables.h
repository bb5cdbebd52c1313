// The tables of a comparison, a row a run that came to its end.

#pragma once

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

// How the loss scale went; no row where losses are not scaled.
Table LossScaleTable(const ComparedWorkload& workload);

}  // namespace lockstep
