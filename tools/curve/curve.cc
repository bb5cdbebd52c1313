// The test of one strategy's loss curve; lockstep_experiment (//experiments:experiment.bzl) calls
// it.
//
//   curve --candidate=PROGRAM --steps=N
//         [--reference=PROGRAM [--reference_steps=N] [--reference_tolerance=X]]
//         [--golden=expected_loss.csv --golden_steps=N --golden_tolerance=X]

#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "core/base/status.h"
#include "tools/curve/strategy_check.h"
#include "tools/experiment/paths.h"

ABSL_FLAG(std::string, candidate, "", "program that runs the strategy");
ABSL_FLAG(int32_t, steps, 0, "how many steps to run");
ABSL_FLAG(std::string, reference, "", "program that runs single; empty: no exact lane");
ABSL_FLAG(int32_t, reference_steps, 0, "how many of the steps are held to single; 0: all");
ABSL_FLAG(double, reference_tolerance, 0, "relative; 0: to the bit, final parameters included");
ABSL_FLAG(std::string, golden, "", "file with the kept curve; empty: no golden lane");
ABSL_FLAG(int32_t, golden_steps, 0, "how many of the steps are held to the kept curve");
ABSL_FLAG(double, golden_tolerance, 0, "relative");

namespace lockstep {
namespace {

constexpr char kGoldenHint[] =
    "  If other strategies fail too, the workload's numbers have moved; if only this one does, "
    "this "
    "strategy has.\n"
    "  When the new curve is meant: ./bazelw run the experiment's :update_expected.\n";

// Returns whether all lanes passed.
absl::StatusOr<bool> RunMain() {
  LS_ASSIGN_OR_RETURN(const TemporaryDirectory scratch, TemporaryDirectory::Create());
  LS_ASSIGN_OR_RETURN(
      const std::vector<LaneResult> lanes,
      CheckStrategy({.candidate = absl::GetFlag(FLAGS_candidate),
                     .steps = absl::GetFlag(FLAGS_steps),
                     .reference = absl::GetFlag(FLAGS_reference),
                     .reference_steps = absl::GetFlag(FLAGS_reference_steps),
                     .reference_tolerance = absl::GetFlag(FLAGS_reference_tolerance),
                     .golden = absl::GetFlag(FLAGS_golden),
                     .golden_steps = absl::GetFlag(FLAGS_golden_steps),
                     .golden_tolerance = absl::GetFlag(FLAGS_golden_tolerance),
                     .scratch = scratch.path()}));
  bool passed = true;
  for (const LaneResult& lane : lanes) {
    if (lane.status.ok()) {
      std::printf("%s: PASS, %s\n", lane.lane.c_str(), lane.summary.c_str());
      continue;
    }
    passed = false;
    std::printf("%s: FAIL, %s\n%s", lane.lane.c_str(), std::string(lane.status.message()).c_str(),
                lane.lane == "golden" ? kGoldenHint : "");
  }
  return passed;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Checks the loss curve of a strategy's first steps.");
  absl::ParseCommandLine(argc, argv);
  const absl::StatusOr<bool> passed = lockstep::RunMain();
  if (!passed.ok()) {
    std::fprintf(stderr, "%s\n", std::string(passed.status().message()).c_str());
    return 1;
  }
  return *passed ? 0 : 1;
}
