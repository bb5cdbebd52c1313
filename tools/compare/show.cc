#include "tools/compare/show.h"

#include <algorithm>  // std::mismatch
#include <cstdio>
#include <filesystem>
#include <functional>  // std::divides
#include <numeric>     // std::accumulate
#include <utility>

#include "core/base/status.h"
#include "tools/compare/comparison.h"
#include "tools/compare/loss_events.h"
#include "tools/compare/report.h"
#include "tools/experiment/outputs.h"
#include "tools/experiment/paths.h"
#include "tools/report/text.h"
#include "tools/report/write_page.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The deepest directory that all runs are in.
fs::path CommonDirectory(const std::vector<RunRecord>& runs) {
  fs::path common;
  for (size_t i = 0; i < runs.size(); ++i) {
    const fs::path parent =
        (fs::path(runs[i].directory) / "").lexically_normal().parent_path().parent_path();
    const auto ends = std::mismatch(common.begin(), common.end(), parent.begin(), parent.end());
    common =
        i == 0 ? parent : std::accumulate(common.begin(), ends.first, fs::path(), std::divides<>());
  }
  return common;
}

// Where the band has the runs of its workload, those that ended early included, and other losses.
absl::StatusOr<Section> PlacedRuns(const LossBand& band,
                                   const std::vector<ComparedWorkload>& workloads,
                                   std::vector<NamedCurve> curves) {
  for (const ComparedWorkload& workload : workloads) {
    if (workload.workload != band.workload) continue;
    for (const ComparedRun& compared : workload.runs) {
      if (compared.run.losses.empty()) continue;
      curves.push_back({.name = compared.label, .losses = compared.run.losses});
    }
  }
  if (curves.empty()) {
    return InvalidArgument("the band is of the workload ", band.workload,
                           ", and no run is; name runs of that workload, or files of losses");
  }
  return BandSection(band, curves);
}

}  // namespace

absl::Status ShowComparison(const std::vector<RunRecord>& runs, const ShowOptions& options) {
  std::string html = options.html;
  if (html.empty()) {
    const fs::path folder =
        runs.empty() ? fs::path(options.foreign.at(0).name).parent_path() : CommonDirectory(runs);
    html = (folder / "comparison.html").string();
  }
  LS_RETURN_IF_ERROR(CheckOutputs({OutputThatBeginsWith(html, "an HTML page", "<!DOCTYPE html>")}));
  const std::vector<ComparedWorkload> workloads = CompareRuns(runs);
  Report report = ComparisonReport(workloads);
  if (options.band) {
    LS_ASSIGN_OR_RETURN(Section section, PlacedRuns(*options.band, workloads, options.foreign));
    report.sections.push_back(std::move(section));
  }
  std::fputs(TextOf(report).c_str(), stdout);
  if (options.tensorboard) {
    const std::string folder = fs::path(html).replace_extension().string() + "_tensorboard";
    LS_RETURN_IF_ERROR(WriteLossEvents(workloads, folder));
    std::printf("loss curves: tensorboard --logdir %s\n", folder.c_str());
  }
  return WritePage(report, "report", html,
                   options.pictures ? Pictures::kBesidePage : Pictures::kNone);
}

}  // namespace lockstep
