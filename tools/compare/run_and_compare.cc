// Runs strategies one after another and shows them side by side. An experiment's :compare and
// //experiments:quickstart call it (//experiments:experiment.bzl):
//
//   run_and_compare [--base NAME] WORKLOAD:NAME=PROGRAM... -- [ARGUMENT FOR EACH PROGRAM]...
//
// The flags below are its own wherever they stand; the other arguments behind the `--` are for each
// program.

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "tools/compare/show.h"
#include "tools/curve/loss_band.h"
#include "tools/experiment/outputs.h"
#include "tools/experiment/run_all.h"

ABSL_FLAG(std::string, base, "", "the first of the runs, whose model the others start from");
ABSL_FLAG(std::string, out, "runs", "directory that gets a run directory for each");
ABSL_FLAG(std::string, band, "",
          "a band of losses (//tools/curve:band): says which losses lie in it");
ABSL_FLAG(bool, png, false,
          "the page to the end of its first section, and each chart, as pictures (by Chromium)");
ABSL_FLAG(bool, tensorboard, false,
          "the loss curves as event files too, in comparison_tensorboard/ beside the page");

namespace lockstep {
namespace {

constexpr int kInterruptedExitCode = 130;  // as a shell tells of SIGINT

// Takes WORKLOAD:NAME=PROGRAM apart.
PlannedRun Planned(const std::string& word) {
  const size_t colon = word.find(':'), equals = word.find('=');
  return {.name = word.substr(colon + 1, equals - colon - 1),
          .program = word.substr(equals + 1),
          .workload = word.substr(0, colon)};
}

absl::StatusOr<int> RunMain(const std::vector<std::string>& words) {
  const std::string base = absl::GetFlag(FLAGS_base);
  RunAllOptions options = {.runs = {}, .out = UserPath(absl::GetFlag(FLAGS_out)), .arguments = {}};
  auto word = words.begin();
  for (; word != words.end() && *word != "--"; ++word) options.runs.push_back(Planned(*word));
  if (word != words.end()) options.arguments.assign(word + 1, words.end());
  for (PlannedRun& run : options.runs) {
    if (base.empty() || run.name == base) continue;
    run.arguments = {"--set", absl::StrCat("model.init=", options.out, "/", base)};
  }

  ShowOptions show = {.pictures = absl::GetFlag(FLAGS_png),
                      .tensorboard = absl::GetFlag(FLAGS_tensorboard)};
  if (const std::string band = absl::GetFlag(FLAGS_band); !band.empty()) {
    LS_ASSIGN_OR_RETURN(show.band, ReadBand(UserPath(band)));
  }
  const RunAllResult result = RunAll(options);
  LS_RETURN_IF_ERROR(ShowComparison(result.records, show));
  if (result.interrupted) return kInterruptedExitCode;
  return std::ranges::all_of(result.records, &RunRecord::complete) ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Runs all strategies of an experiment one after another and shows them side by "
                "side: tables\nhere, and a page with charts, comparison.html, beside the run "
                "directories. Everything but these\nflags, such as --set KEY=VALUE or --data DIR, "
                "is for each strategy's program.",
       .files = {__FILE__, lockstep::kOverwriteFlagFile},
       .words = lockstep::ProgramFlags::Words::kPassedOn},
      lockstep::RunMain);
}
