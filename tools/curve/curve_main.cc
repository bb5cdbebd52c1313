// The test of one strategy's loss curve; lockstep_experiment (//experiments:experiment.bzl) calls
// it.
//
//   curve --candidate=PROGRAM --candidate_steps=N [--device=cuda] [--repeat]
//         [--reference=PROGRAM]
//         [--golden=expected_loss.csv --golden_steps=N --golden_tolerance=X]
//
// When a lane fails, the programs run again with probes. Where two of them part, the first tensor
// that differs is printed; the probes of both sides, and the page divergence.html, are left among
// the test's outputs. Where the strategy has the bits of `single` and the kept curve has moved,
// what all strategies share has changed: the probes that are left are to be compared with those of
// an older commit.

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
#include "tools/curve/first_tensor.h"
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

// Prints the first tensor at which two programs part, and leaves the page in `outputs`.
absl::Status ShowFirstTensor(const StrategyCheckOptions& options, const LaneResult& lane,
                             const std::string& outputs) {
  const std::string expected = lane.lane == "repeat" ? options.candidate : options.reference;
  std::printf("Both once more, with probes, to see where they part:\n");
  std::fflush(stdout);
  LS_ASSIGN_OR_RETURN(
      const Report report,
      FindFirstTensor(options,
                      {.a = expected, .b = options.candidate, .last_step = *lane.failed_step},
                      outputs + "/probes"));
  std::fputs(TextOf(report).c_str(), stdout);
  const std::string page = outputs + "/divergence.html";
  LS_RETURN_IF_ERROR(WriteFileAtomically(page, HtmlOf(report)));
  std::printf("  The page: %s; probes of both sides: %s/probes (in test.outputs)\n", page.c_str(),
              outputs.c_str());
  return absl::OkStatus();
}

// Says how to find what moved all strategies alike.
absl::Status ShowHowToBisect(const StrategyCheckOptions& options, const LaneResult& lane,
                             const std::string& outputs) {
  const std::string probes = outputs + "/probes/b";
  LS_RETURN_IF_ERROR(LeaveProbes(options, options.candidate, *lane.failed_step, probes));
  std::printf(
      "  Only the kept curve differs: what all strategies share has changed. The commit and the "
      "tensor:\n"
      "    ./bazelw run //tools/curve:bisect -- --good REV --workload %s --strategy %s\n"
      "  Probes of this side, to compare with those of an older commit: %s (in test.outputs)\n",
      std::filesystem::path(options.golden).parent_path().filename().c_str(),
      std::filesystem::path(options.candidate).filename().c_str(), probes.c_str());
  return absl::OkStatus();
}

// Prints where the programs of a lane that failed part.
absl::Status ShowWhatDiffers(const StrategyCheckOptions& options,
                             const std::vector<LaneResult>& lanes) {
  const char* variable = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  const std::string outputs = variable != nullptr ? variable : options.scratch + "/outputs";
  LS_RETURN_IF_ERROR(MakeDirectories(outputs));
  for (const LaneResult& lane : lanes) {
    if (lane.status.ok() || !lane.failed_step) continue;
    return lane.lane == "golden" ? ShowHowToBisect(options, lane, outputs)
                                 : ShowFirstTensor(options, lane, outputs);
  }
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
  if (!passed) LS_RETURN_IF_ERROR(ShowWhatDiffers(options, lanes));
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
