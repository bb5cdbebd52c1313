// Runs side by side.
//
//   ./bazelw run //tools/compare -- runs/gpt_markov/single runs/gpt_markov/ddp

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "tools/compare/show.h"
#include "tools/curve/band_report.h"
#include "tools/curve/loss_band.h"
#include "tools/experiment/outputs.h"
#include "tools/experiment/run_record.h"

ABSL_FLAG(std::string, html, "",
          "where the page goes; default: comparison.html in the folder that has all runs");
ABSL_FLAG(std::string, band, "",
          "a band of losses (//tools/curve:band): says which losses lie in it");
ABSL_FLAG(bool, png, false,
          "the page to the end of its first section, and each chart, as pictures (by Chromium)");
ABSL_FLAG(bool, tensorboard, false,
          "the loss curves as event files too, in comparison_tensorboard/ beside the page");

namespace lockstep {
namespace {

// 0 if all runs came to their end.
absl::StatusOr<int> Run(const std::vector<std::string>& directories) {
  if (directories.empty()) {
    return absl::InvalidArgumentError("name the runs; --help lists what there is");
  }
  const std::string html = absl::GetFlag(FLAGS_html);
  ShowOptions options = {.html = html.empty() ? "" : UserPath(html),
                         .pictures = absl::GetFlag(FLAGS_png),
                         .tensorboard = absl::GetFlag(FLAGS_tensorboard)};
  if (const std::string band = absl::GetFlag(FLAGS_band); !band.empty()) {
    LS_ASSIGN_OR_RETURN(options.band, ReadBand(UserPath(band)));
  }
  std::vector<RunRecord> runs;
  for (const std::string& word : directories) {
    if (!word.ends_with(".csv")) {
      runs.push_back(ReadRunRecord(UserPath(word)));
      continue;
    }
    if (!options.band) {
      return InvalidArgument(
          word, " is a file of losses, not a run; name the band to place it in: ", "--band FILE");
    }
    LS_ASSIGN_OR_RETURN(NamedCurve curve, ReadNamedCurve(UserPath(word)));
    options.foreign.push_back(std::move(curve));
  }
  LS_RETURN_IF_ERROR(ShowComparison(runs, options));
  return std::ranges::all_of(runs, &RunRecord::complete) ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage =
           "Prints runs side by side, and writes a page with charts that needs nothing beside "
           "it:\n\n  compare RUN_DIRECTORY... [options]\n\nWith --band, files of losses by other "
           "programs (.csv) may stand among the runs.",
       .files = {__FILE__, lockstep::kOverwriteFlagFile},
       .words = lockstep::ProgramFlags::Words::kAny},
      lockstep::Run);
}
