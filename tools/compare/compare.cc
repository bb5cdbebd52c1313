// Runs side by side.
//
//   ./bazelw run //tools/compare -- runs/gpt_markov/single runs/gpt_markov/ddp

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "tools/arguments/arguments.h"
#include "tools/compare/show.h"
#include "tools/experiment/run_record.h"

namespace lockstep {
namespace {

constexpr char kUsage[] =
    "usage: compare RUN_DIRECTORY... [--html PATH] [--png]\n"
    "Prints runs side by side, and writes a page with charts that needs nothing beside it.\n"
    "  --html   where the page goes; default: comparison.html in the folder that has all runs\n"
    "  --png    the page and each chart as pictures too, beside it (by Chromium)\n";

// Whether all runs came to their end.
absl::StatusOr<bool> Run(const std::vector<std::string>& command_line) {
  LS_ASSIGN_OR_RETURN(const Arguments arguments,
                      Arguments::Parse(command_line, {{"--help", FlagKind::kSwitch},
                                                      {"--html", FlagKind::kValue},
                                                      {"--png", FlagKind::kSwitch}}));
  if (arguments.Has("--help")) {
    std::fputs(kUsage, stdout);
    return true;
  }
  if (arguments.words().empty()) {
    return absl::InvalidArgumentError(absl::StrCat("name the runs\n", kUsage));
  }
  std::vector<RunRecord> runs;
  bool all_complete = true;
  for (const std::string& directory : arguments.words()) {
    runs.push_back(ReadRunRecord(UserPath(directory)));
    all_complete &= runs.back().complete();
  }
  const std::string html = arguments.Has("--html") ? UserPath(arguments.Value("--html"))
                                                   : CommonDirectory(runs) + "/comparison.html";
  LS_RETURN_IF_ERROR(ShowComparison(runs, {.html = html, .pictures = arguments.Has("--png")}));
  return all_complete;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const absl::StatusOr<bool> all_complete = lockstep::Run({argv + 1, argv + argc});
  if (!all_complete.ok()) {
    lockstep::PrintError(all_complete.status());
    return 1;
  }
  return *all_complete ? 0 : 1;
}
