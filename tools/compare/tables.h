// The tables of a comparison, a row a run that came to its end.

#pragma once

#include <string>
#include <vector>

#include "tools/compare/comparison.h"
#include "tools/report/report.h"

namespace lockstep {

// Loss curves against their references; what is trained, where some parameters are not; where the
// time of a step went; memory of the rank with most, and what a rank sends, measured beside
// predicted; loss scales. Tables and columns in which no run has anything are left out. Nothing
// where no run came to its end.
std::vector<Section::Item> ComparisonTables(const ComparedWorkload& workload);

// The ranks that runs have lost: when, what happened to them, from where the others went on and how
// long that took; and whether the curve is still the reference's. Nothing where none was lost.
std::vector<Section::Item> LostRanks(const ComparedWorkload& workload);

// The changes of mesh of runs with legs: behind which step, from which strategy and mesh to which,
// how long the change took and what ranks sent each other. Nothing where no run has changed its
// mesh.
std::vector<Section::Item> ChangesOfMesh(const ComparedWorkload& workload);

// The ranks that runs have named as slower than others with the same work: how often, how much, and
// in which part of the step. Nothing where none was named (or guard.straggler_factor was not set).
std::vector<Section::Item> SlowRanks(const ComparedWorkload& workload);

// The loss scale of a run over its steps as one line of block characters, each an eighth of the way
// from the lowest to the highest power of two, with both ends and the steps that were skipped:
//
//   65536 ▇▇██▇▆▆ 32768, lowest 16384, highest 131072; skipped 2 steps: 812, 815
//
// Empty where losses are not scaled.
std::string LossScaleLine(const RunRecord& run);

}  // namespace lockstep
