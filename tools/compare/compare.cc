// Runs side by side.
//
//   ./bazelw run //tools/compare -- runs/gpt_markov/single runs/gpt_markov/ddp

#include <cstdio>
#include <string>
#include <vector>

#include "core/base/user_path.h"
#include "tools/compare/comparison.h"
#include "tools/compare/report.h"
#include "tools/experiment/run_record.h"

namespace lockstep {
namespace {

int CompareMain(const std::vector<std::string>& directories) {
  if (directories.empty() || directories[0].starts_with("-")) {
    std::fprintf(stderr, "usage: compare RUN_DIRECTORY...\nPrints runs side by side.\n");
    return directories.empty() || directories[0] != "--help" ? 1 : 0;
  }
  std::vector<RunRecord> runs;
  bool all_complete = true;
  for (const std::string& directory : directories) {
    runs.push_back(ReadRunRecord(UserPath(directory)));
    all_complete &= runs.back().complete();
  }
  std::fputs(TextReport(CompareRuns(runs)).c_str(), stdout);
  return all_complete ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::CompareMain({argv + 1, argv + argc}); }
