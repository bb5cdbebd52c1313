#include "tools/curve/strategy_check.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/base/subprocess.h"
#include "tools/curve/curve_check.h"

namespace lockstep {
namespace {

// Only the number of steps is cut: a schedule that spans the whole workload names its own
// total_steps. One thread a rank gives the same bits for any number of ranks.
std::vector<std::string> Arguments(const StrategyCheckOptions& options) {
  std::vector<std::string> arguments = {"--set", absl::StrCat("train.steps=", options.steps)};
  for (const char* assignment :
       {"run.threads=1", "validation.every=0", "validation.batches=1", "trace.steps=0"}) {
    arguments.insert(arguments.end(), {"--set", assignment});
  }
  if (options.device != "cpu") {
    arguments.insert(arguments.end(), {"--device", options.device});
  }
  return arguments;
}

// A lane that asks for all bits of a run.
LaneResult ToTheBit(const StrategyCheckOptions& options, const std::string& lane,
                    const RunRecord& actual, const RunRecord& expected, const CurveNames& names,
                    const std::string& passed) {
  LaneResult result = {
      .lane = lane,
      .status = CheckCurve(actual.losses, expected.losses, {.steps = options.steps}, names),
      .summary = absl::StrCat(options.steps, " steps, losses and parameters ", passed)};
  const CurveComparison comparison = CompareCurves(actual.losses, expected.losses, 0);
  if (comparison.first_outside) result.failed_step = comparison.first_outside->step;
  if (result.status.ok() && actual.parameter_hash != expected.parameter_hash) {
    result.status = absl::OutOfRangeError(absl::StrCat(
        names.actual, " has the losses of ", names.expected, " in all ", actual.steps,
        " steps, but other final parameters (hash ", actual.parameter_hash, ", expected ",
        expected.parameter_hash, "): the last update differs, or a part that no loss shows"));
    result.failed_step = options.steps - 1;
  }
  return result;
}

LaneResult Golden(const StrategyCheckOptions& options, const RunRecord& candidate) {
  LaneResult result = {.lane = "golden", .status = absl::OkStatus()};
  const absl::StatusOr<std::vector<LossPoint>> golden = ReadLossCurve(options.golden);
  if (!golden.ok()) {
    result.status = golden.status();
    return result;
  }
  result.status = CheckCurve(candidate.losses, *golden,
                             {.steps = options.golden_steps, .tolerance = options.golden_tolerance},
                             {.actual = candidate.strategy, .expected = options.golden});
  const CurveComparison comparison =
      CompareCurves(candidate.losses, *golden, options.golden_tolerance,
                    static_cast<size_t>(options.golden_steps));
  if (comparison.first_outside) result.failed_step = comparison.first_outside->step;
  result.summary = absl::StrFormat(
      "%d steps within %g of %s; %s", options.golden_steps, options.golden_tolerance,
      options.golden,
      comparison.largest ? "farthest at " + comparison.largest->ToString() : "no difference");
  return result;
}

}  // namespace

absl::StatusOr<RunRecord> RunForCheck(const StrategyCheckOptions& options,
                                      const std::string& program, const std::string& out,
                                      const std::vector<std::string>& assignments) {
  std::vector<std::string> arguments = Arguments(options);
  for (const std::string& assignment : assignments) {
    arguments.insert(arguments.end(), {"--set", assignment});
  }
  arguments.insert(arguments.begin(), program);
  arguments.insert(arguments.end(), {"--out", out});
  LS_ASSIGN_OR_RETURN(
      const ProcessResult result,
      RunProcess({.arguments = arguments, .environment = {{"CUDA_VISIBLE_DEVICES", "0"}}}));
  if (!result.ok()) {
    return absl::AbortedError(absl::StrCat(program, ": ", result.Describe(), "\n",
                                           absl::StripAsciiWhitespace(result.err)));
  }
  RunRecord record = ReadRunRecord(out);
  if (!record.complete()) {
    return absl::DataLossError(absl::StrCat(program, " left in ", out, ": ", record.problem));
  }
  return record;
}

absl::StatusOr<std::vector<LaneResult>> CheckStrategy(const StrategyCheckOptions& options) {
  if (options.steps < 1 ||
      (!options.repeat && options.reference.empty() && options.golden.empty())) {
    return absl::InvalidArgumentError(
        "nothing to check: give steps, and repeat, a reference or a golden");
  }
  if (!options.golden.empty() &&
      (options.golden_steps < 1 || options.golden_steps > options.steps)) {
    return InvalidArgument("of ", options.steps, " steps, ", options.golden_steps,
                           " cannot be held to the golden curve");
  }
  LS_ASSIGN_OR_RETURN(const RunRecord candidate,
                      RunForCheck(options, options.candidate, options.scratch + "/candidate"));
  std::vector<LaneResult> lanes;
  if (options.repeat) {
    LS_ASSIGN_OR_RETURN(const RunRecord again,
                        RunForCheck(options, options.candidate, options.scratch + "/again"));
    lanes.push_back(ToTheBit(options, "repeat", again, candidate, {"the second run", "the first"},
                             "of a second run to the bit"));
  }
  if (!options.reference.empty()) {
    LS_ASSIGN_OR_RETURN(const RunRecord reference,
                        RunForCheck(options, options.reference, options.scratch + "/reference"));
    lanes.push_back(ToTheBit(options, "exact", candidate, reference,
                             {candidate.strategy, reference.strategy},
                             absl::StrCat("are ", reference.strategy, "'s to the bit")));
  }
  if (!options.golden.empty()) lanes.push_back(Golden(options, candidate));
  return lanes;
}

}  // namespace lockstep
