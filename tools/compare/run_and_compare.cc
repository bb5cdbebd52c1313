// Runs strategies one after another and shows them side by side. An experiment's :compare and
// //experiments:quickstart call it (//experiments:experiment.bzl):
//
//   run_and_compare [--base NAME] WORKLOAD:NAME=PROGRAM... -- [ARGUMENT FOR EACH PROGRAM]...
//
// `--base` names the first of them, whose model the others start from. Of the arguments behind the
// `--`, --out DIR is its own: the directory that gets one for each run; "runs" where it is not
// given.

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "tools/compare/references.h"
#include "tools/compare/show.h"
#include "tools/experiment/run_all.h"

namespace lockstep {
namespace {

constexpr char kUsage[] =
    "Runs all strategies of an experiment one after another and shows them side by side: tables\n"
    "here, and a page with charts, comparison.html, beside the run directories.\n\n"
    "  --out DIR    directory that gets a run directory for each; default: runs\n"
    "  --png        the page and each of its charts as pictures too (by Chromium)\n"
    "  --help       this text\n"
    "Everything else, such as --set KEY=VALUE or --data DIR, is for each strategy's program.\n";

constexpr int kInterruptedExitCode = 130;  // as a shell tells of SIGINT

// Of WORKLOAD:NAME=PROGRAM.
PlannedRun Planned(const std::string& word) {
  const size_t colon = word.find(':'), equals = word.find('=');
  return {.name = word.substr(colon + 1, equals - colon - 1),
          .program = word.substr(equals + 1),
          .workload = word.substr(0, colon)};
}

int RunMain(const std::vector<std::string>& words) {
  RunAllOptions options = {.runs = {}, .out = "runs", .arguments = {}};
  bool pictures = false;
  std::string base;
  size_t i = 0;
  for (; i < words.size() && words[i] != "--"; ++i) {
    if (words[i] == "--base") {
      base = words[++i];
    } else {
      options.runs.push_back(Planned(words[i]));
    }
  }
  for (++i; i < words.size(); ++i) {
    if (words[i] == "--help") {
      std::fputs(kUsage, stdout);
      return 0;
    }
    if (words[i].starts_with("--out=")) {
      options.out = words[i].substr(words[i].find('=') + 1);
    } else if (words[i] == "--out" && i + 1 < words.size()) {
      options.out = words[++i];
    } else if (words[i] == "--png") {
      pictures = true;
    } else {
      options.arguments.push_back(words[i]);
    }
  }
  options.out = UserPath(options.out);
  for (PlannedRun& run : options.runs) {
    if (base.empty() || run.name == base) continue;
    run.arguments = {"--set", absl::StrCat("model.init=", options.out, "/", base)};
  }

  RunAllResult result = RunAll(options);
  options.runs = MissingReferences(options.runs, result.records);
  if (!result.interrupted && !options.runs.empty()) {
    std::fprintf(stderr, "References whose batch is cut as that of runs above:\n");
    const RunAllResult references = RunAll(options);
    result.interrupted = references.interrupted;
    result.records.insert(result.records.end(), references.records.begin(),
                          references.records.end());
  }
  const absl::Status shown = ShowComparison(
      result.records,
      {.html = CommonDirectory(result.records) + "/comparison.html", .pictures = pictures});
  if (!shown.ok()) {
    PrintError(shown);
    return 1;
  }
  if (result.interrupted) return kInterruptedExitCode;
  for (const RunRecord& record : result.records) {
    if (!record.complete()) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::RunMain({argv + 1, argv + argc}); }
