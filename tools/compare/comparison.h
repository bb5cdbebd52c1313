#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/report/metrics.h"
#include "tools/curve/curve_check.h"
#include "tools/experiment/run_record.h"

namespace lockstep {

// A run beside the one that it is measured by.
struct ComparedRun {
  RunRecord run;
  // The strategy, or those of the legs; where that does not tell runs apart, or what a run is there
  // for, with the mesh, the batch's cut or the directory's last name, whichever does.
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
  // What else they differ in, which by itself moves no curve: threads, the mesh, what is measured.
  std::vector<Config::Difference> differences_of_run;

  // Whether its curve or its parameters are not the reference's.
  bool parts() const {
    return curve && (curve->first_outside.has_value() || !same_parameters || !same_length);
  }
};

// The runs of one workload.
struct ComparedWorkload {
  std::string workload;  // empty: of runs that do not tell
  std::vector<ComparedRun> runs;
};

// What a summary calls "pp=1,dp=2,tp=1", without the axes of size 1: "dp=2"; empty for one rank.
std::string ShortMesh(const std::string& mesh);

// What a change of mesh calls "ddp pp=1,dp=2,tp=1", in the same way: "ddp dp=2".
std::string ShortFormation(const std::string& formation);

// The axes of a mesh along which there are several ranks: "dp x tp"; empty for one rank.
std::string MeshKind(const std::string& mesh);

// Whether a run trains adapters on a frozen model.
bool HasAdapters(const RunRecord& run);

// What a run is measured by: the first complete run on one rank, of `single` or `lora`, that trains
// what it does of the same workload (all of the model, or adapters) and cuts the batch as it does.
// Null if there is none: a run with legs is no reference, even if its last leg has one rank.
const RunRecord* FindReference(const RunRecord& run, const std::vector<RunRecord>& runs);

// Groups runs by workload, in the order in which they are given.
std::vector<ComparedWorkload> CompareRuns(const std::vector<RunRecord>& runs);

}  // namespace lockstep
