// Where two probed runs part.
//
//   ./bazelw run //tools/divergence -- runs/gpt_markov/single runs/gpt_markov/ddp

#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "core/config/config.h"
#include "core/probe/probed_run.h"
#include "tools/divergence/divergence.h"
#include "tools/divergence/divergence_report.h"
#include "tools/divergence/foreign.h"
#include "tools/divergence/judgement.h"
#include "tools/experiment/outputs.h"
#include "tools/report/text.h"
#include "tools/report/write_page.h"

ABSL_FLAG(std::string, html, "", "where the page goes; default: divergence.html in RUN_B");
ABSL_FLAG(bool, png, false, "the page and its chart as pictures too, beside it (by Chromium)");

namespace lockstep {
namespace {

absl::StatusOr<int> RunForeign(const ProbedRun& ours, const std::string& directory,
                               const ProbedRun& theirs) {
  if (IsForeign(ours)) {
    return InvalidArgument(ours.folder, ": is of another program, too; RUN_A must be Lockstep's");
  }
  LS_ASSIGN_OR_RETURN(const Config config, Config::FromFile(UserPath(directory) + "/config.toml"));
  LS_ASSIGN_OR_RETURN(const ForeignComparison comparison, CompareForeign(ours, config, theirs));
  std::fputs(comparison.text.c_str(), stdout);
  return comparison.agrees ? 0 : 1;
}

// 0 if the runs agree, 1 if they part.
absl::StatusOr<int> Run(const std::vector<std::string>& directories) {
  if (directories.size() != 2) {
    return absl::InvalidArgumentError("name the directories of two runs: divergence RUN_A RUN_B");
  }
  const std::string flag = absl::GetFlag(FLAGS_html);
  const std::string html = UserPath(flag.empty() ? directories[1] + "/divergence.html" : flag);
  LS_RETURN_IF_ERROR(CheckOutputs({OutputThatBeginsWith(html, "an HTML page", "<!DOCTYPE html>")}));
  LS_ASSIGN_OR_RETURN(const ProbedRun a, ReadProbedRun(UserPath(directories[0])));
  LS_ASSIGN_OR_RETURN(const ProbedRun b, ReadProbedRun(UserPath(directories[1])));
  if (IsForeign(b)) return RunForeign(a, directories[0], b);
  LS_ASSIGN_OR_RETURN(const Divergence divergence, FindDivergence(a, b));
  Judgement judgement;
  const bool agree = divergence.differences.empty();
  if (!agree) {
    LS_ASSIGN_OR_RETURN(judgement, Judge(a, b, divergence.differences.front()));
  }
  const Report report = DivergenceReport(a, b, divergence, judgement);
  std::fputs(TextOf(report).c_str(), stdout);
  LS_RETURN_IF_ERROR(WritePage(report, "report", html,
                               absl::GetFlag(FLAGS_png) ? Pictures::kBesidePage : Pictures::kNone));
  return agree ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Finds the first tensor at which two runs with probes (--set probe.steps=3) "
                "differ:\n\n  divergence RUN_A RUN_B [options]",
       .files = {__FILE__, lockstep::kOverwriteFlagFile},
       .words = lockstep::ProgramFlags::Words::kAny},
      lockstep::Run);
}
