// Runs side by side.
//
//   ./bazelw run //tools/compare -- runs/gpt_markov/single runs/gpt_markov/ddp

#include <algorithm>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "tools/compare/show.h"
#include "tools/experiment/outputs.h"
#include "tools/experiment/run_record.h"

ABSL_FLAG(std::string, html, "",
          "where the page goes; default: comparison.html in the folder that has all runs");
ABSL_FLAG(bool, png, false, "the page and each chart as pictures too, beside it (by Chromium)");

namespace lockstep {
namespace {

// 0 if all runs came to their end.
absl::StatusOr<int> Run(const std::vector<std::string>& directories) {
  if (directories.empty()) {
    return absl::InvalidArgumentError("name the runs; --help lists what there is");
  }
  std::vector<RunRecord> runs;
  for (const std::string& directory : directories) {
    runs.push_back(ReadRunRecord(UserPath(directory)));
  }
  const std::string html = absl::GetFlag(FLAGS_html);
  LS_RETURN_IF_ERROR(
      ShowComparison(runs, html.empty() ? "" : UserPath(html), absl::GetFlag(FLAGS_png)));
  return std::ranges::all_of(runs, &RunRecord::complete) ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Prints runs side by side, and writes a page with charts that needs nothing beside "
                "it:\n\n  compare RUN_DIRECTORY... [options]",
       .files = {__FILE__, lockstep::kOverwriteFlagFile},
       .words = lockstep::ProgramFlags::Words::kAny},
      lockstep::Run);
}
