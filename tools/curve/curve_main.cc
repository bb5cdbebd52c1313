// The test of one strategy's loss curve; lockstep_experiment (//experiments:experiment.bzl) calls
// it.
//
//   curve --candidate=PROGRAM --candidate_steps=N [--device=cuda] [--repeat]
//         [--reference=PROGRAM]
//         [--golden=expected_loss.csv --golden_steps=N --golden_tolerance=X
//          [--all=NAME=PROGRAM,...]]
//
// When a lane fails, all the workload's strategies (--all) are run and held to the kept curve: who
// moved tells where to look. Their curves are left as loss_curves.html among the test's outputs.

#include "tools/curve/curve_main.h"

#include <cstdio>
#include <cstdlib>  // std::getenv
#include <filesystem>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/config/device_flag.h"
#include "core/report/metrics.h"
#include "tools/curve/failure_report.h"
#include "tools/curve/strategy_check.h"
#include "tools/experiment/paths.h"
#include "tools/report/html.h"
#include "tools/report/text.h"

ABSL_FLAG(std::string, candidate, "", "program that runs the strategy");
ABSL_FLAG(int32_t, candidate_steps, 0, "how many steps to run");
ABSL_FLAG(bool, repeat, false, "whether a second run must have the bits of the first");
ABSL_FLAG(std::string, reference, "", "program that runs single; empty: no exact lane");
ABSL_FLAG(std::string, golden, "", "file with the kept curve; empty: no golden lane");
ABSL_FLAG(int32_t, golden_steps, 0, "how many of the steps are held to the kept curve");
ABSL_FLAG(double, golden_tolerance, 0, "relative");
ABSL_FLAG(std::vector<std::string>, all, {},
          "NAME=PROGRAM of each of the workload's strategies, which tell who moved");

namespace lockstep {
namespace {

constexpr char kGoldenHint[] =
    "  When the new curve is meant: ./bazelw run the experiment's :update_expected.\n";

StrategyCheckOptions OptionsOfFlags(const std::string& scratch) {
  return {.candidate = absl::GetFlag(FLAGS_candidate),
          .steps = absl::GetFlag(FLAGS_candidate_steps),
          .device = absl::GetFlag(FLAGS_device),
          .repeat = absl::GetFlag(FLAGS_repeat),
          .reference = absl::GetFlag(FLAGS_reference),
          .golden = absl::GetFlag(FLAGS_golden),
          .golden_steps = absl::GetFlag(FLAGS_golden_steps),
          .golden_tolerance = absl::GetFlag(FLAGS_golden_tolerance),
          .scratch = scratch};
}

std::vector<NamedProgram> AllStrategies() {
  std::vector<NamedProgram> programs;
  for (const std::string& flag : absl::GetFlag(FLAGS_all)) {
    const size_t equals = flag.find('=');
    programs.push_back({.strategy = flag.substr(0, equals), .program = flag.substr(equals + 1)});
  }
  return programs;
}

// Says which strategies moved, and leaves their curves among the test's outputs.
absl::Status ShowWhoMoved(const StrategyCheckOptions& options) {
  const std::vector<NamedProgram> programs = AllStrategies();
  if (options.golden.empty() || programs.empty()) return absl::OkStatus();
  std::printf("All strategies of this workload, to see which moved:\n");
  std::fflush(stdout);
  LS_ASSIGN_OR_RETURN(const std::vector<LossPoint> golden, ReadLossCurve(options.golden));
  const std::filesystem::path folder = std::filesystem::path(options.golden).parent_path();
  const Report report = FailureReport(folder.filename().string(), golden,
                                      HoldToGolden(options, programs), options.golden_tolerance);
  std::fputs(TextOf(report).c_str(), stdout);
  const char* outputs = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  if (outputs == nullptr) return absl::OkStatus();
  const std::string page = absl::StrCat(outputs, "/loss_curves.html");
  LS_RETURN_IF_ERROR(WriteFileAtomically(page, HtmlOf(report)));
  std::printf("  The curves: %s (in test.outputs, or outputs.zip there)\n", page.c_str());
  return absl::OkStatus();
}

// Returns 0 if all lanes passed.
absl::StatusOr<int> RunTest() {
  LS_ASSIGN_OR_RETURN(const TemporaryDirectory scratch, TemporaryDirectory::Create());
  const StrategyCheckOptions options = OptionsOfFlags(scratch.path());
  LS_ASSIGN_OR_RETURN(const std::vector<LaneResult> lanes, CheckStrategy(options));
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
  if (!passed) LS_RETURN_IF_ERROR(ShowWhoMoved(options));
  return passed ? 0 : 1;
}

}  // namespace

int CurveMain(int argc, char** argv) {
  return RunProgram(argc, argv,
                    {.usage = "Checks the loss curve of a strategy's first steps.",
                     .files = {__FILE__, kDeviceFlagFile}},
                    [](const auto&) { return RunTest(); });
}

}  // namespace lockstep
