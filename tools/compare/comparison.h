#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/train/config.h"
#include "core/train/metrics.h"
#include "tools/curve/curve_check.h"
#include "tools/experiment/run_record.h"

namespace lockstep {

// A run beside the one that it is measured by.
struct ComparedRun {
  RunRecord run;
  // The strategy; where it comes twice, with the mesh, the batch's cut or the directory's last
  // name, whichever tells its runs apart.
  std::string label;
  bool is_reference = false;
  // Against the reference; none where there is no reference, or one of the two is not complete.
  std::optional<CurveComparison> curve;
  // (loss - reference's) / |reference's|, by step, as far as `curve` goes.
  std::vector<LossPoint> differences;
  bool same_length = false;      // both have as many steps
  bool same_parameters = false;  // at the end
  // What their configurations differ in beyond the strategy, e.g. train.steps: then the curves may
  // part for that reason.
  std::vector<Config::Difference> differences_of_config;
};

// The runs of one workload.
struct ComparedWorkload {
  std::string workload;  // empty: of runs that do not tell
  std::vector<ComparedRun> runs;
};

// What a run is measured by: the first complete run of `single` with the same workload, shards, in
// the same groups, and micro-batches (contract 3 of the design). Null if there is none.
const RunRecord* FindReference(const RunRecord& run, const std::vector<RunRecord>& runs);

// Groups runs by workload, in the order in which they are given.
std::vector<ComparedWorkload> CompareRuns(const std::vector<RunRecord>& runs);

}  // namespace lockstep
