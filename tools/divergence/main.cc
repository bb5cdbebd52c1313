// Where two probed runs part, and whether losses lie in a workload's band.
//
//   ./bazelw run //tools/divergence -- runs/gpt_markov/single runs/gpt_markov/ddp
//   ./bazelw run //tools/divergence -- --band runs/gpt_markov/band.csv THEIR/losses.csv

#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "core/base/file.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "core/config/config.h"
#include "core/probe/probed_run.h"
#include "tools/curve/band_report.h"
#include "tools/curve/loss_band.h"
#include "tools/divergence/divergence.h"
#include "tools/divergence/divergence_report.h"
#include "tools/divergence/foreign.h"
#include "tools/divergence/judgement.h"
#include "tools/experiment/outputs.h"
#include "tools/report/report.h"
#include "tools/report/text.h"
#include "tools/report/write_page.h"

ABSL_FLAG(std::string, html, "", "where the page goes; default: divergence.html in RUN_B");
ABSL_FLAG(std::string, band, "",
          "a band of losses (//tools/curve:band): says whether those of RUN_B lie in it");
ABSL_FLAG(bool, png, false,
          "the page to the end of its first section, and its chart, as pictures (by Chromium)");

namespace lockstep {
namespace {

// What is shown, and whether all is well.
struct Outcome {
  Report report;
  bool agrees = true;
};

// A run of another program has a report in words alone.
absl::StatusOr<Outcome> CompareWithForeign(const ProbedRun& ours, const std::string& directory,
                                           const ProbedRun& theirs) {
  if (IsForeign(ours)) {
    return InvalidArgument(ours.folder, ": is of another program, too; RUN_A must be Lockstep's");
  }
  LS_ASSIGN_OR_RETURN(const Config config, Config::FromFile(UserPath(directory) + "/config.toml"));
  LS_ASSIGN_OR_RETURN(const ForeignComparison comparison, CompareForeign(ours, config, theirs));
  std::fputs(comparison.text.c_str(), stdout);
  return Outcome{.report = {}, .agrees = comparison.agrees};
}

absl::StatusOr<Outcome> CompareProbes(const std::string& a_directory,
                                      const std::string& b_directory) {
  LS_ASSIGN_OR_RETURN(const ProbedRun a, ReadProbedRun(UserPath(a_directory)));
  LS_ASSIGN_OR_RETURN(const ProbedRun b, ReadProbedRun(UserPath(b_directory)));
  if (IsForeign(b)) return CompareWithForeign(a, a_directory, b);
  LS_ASSIGN_OR_RETURN(const Divergence divergence, FindDivergence(a, b));
  Judgement judgement;
  const bool agree = divergence.differences.empty();
  if (!agree) {
    LS_ASSIGN_OR_RETURN(judgement, Judge(a, b, divergence.differences.front()));
  }
  return Outcome{.report = DivergenceReport(a, b, divergence, judgement), .agrees = agree};
}

// Adds where the band has the losses of `path`; these agree where they are inside.
absl::Status Place(const std::string& path, Outcome& outcome) {
  LS_ASSIGN_OR_RETURN(const LossBand band, ReadBand(UserPath(absl::GetFlag(FLAGS_band))));
  LS_ASSIGN_OR_RETURN(NamedCurve curve, ReadNamedCurve(UserPath(path)));
  curve.name = path;
  LS_ASSIGN_OR_RETURN(Section section, BandSection(band, {curve}));
  LS_ASSIGN_OR_RETURN(const BandPlacement placement, PlaceInBand(curve.losses, band));
  if (outcome.report.title.empty()) outcome.report.title = "Where losses lie";
  outcome.report.sections.push_back(std::move(section));
  outcome.agrees = outcome.agrees && !placement.outside_from;
  return absl::OkStatus();
}

// 0 if the runs agree, and the losses lie in the band; else 1.
absl::StatusOr<int> Run(const std::vector<std::string>& words) {
  const bool has_band = !absl::GetFlag(FLAGS_band).empty();
  if (words.size() != 2 && !(has_band && words.size() == 1)) {
    return absl::InvalidArgumentError(
        "name the directories of two runs: divergence RUN_A RUN_B; or a band and one run or file "
        "of losses: divergence --band FILE RUN_B");
  }
  const std::string flag = absl::GetFlag(FLAGS_html), last = UserPath(words.back());
  const std::string folder =
      IsDirectory(last) ? last : std::filesystem::path(last).parent_path().string();
  const std::string html = flag.empty() ? folder + "/divergence.html" : UserPath(flag);
  LS_RETURN_IF_ERROR(CheckOutputs({OutputThatBeginsWith(html, "an HTML page", "<!DOCTYPE html>")}));
  Outcome outcome;
  if (words.size() == 2) {
    LS_ASSIGN_OR_RETURN(outcome, CompareProbes(words[0], words[1]));
  }
  if (has_band) LS_RETURN_IF_ERROR(Place(words.back(), outcome));
  if (!outcome.report.sections.empty()) {
    std::fputs(TextOf(outcome.report).c_str(), stdout);
    LS_RETURN_IF_ERROR(
        WritePage(outcome.report, "report", html,
                  absl::GetFlag(FLAGS_png) ? Pictures::kBesidePage : Pictures::kNone));
  }
  return outcome.agrees ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage =
           "Finds the first tensor at which two runs with probes (--set probe.steps=3) "
           "differ:\n\n  divergence RUN_A RUN_B [options]\n\nWith --band, says whether the losses "
           "of RUN_B lie in the band of their workload; then RUN_B may stand\nalone, and be "
           "a file with the columns of losses.csv.",
       .files = {__FILE__, lockstep::kOverwriteFlagFile},
       .words = lockstep::ProgramFlags::Words::kAny},
      lockstep::Run);
}
