#include "tools/compare/show.h"

#include <algorithm>  // std::mismatch
#include <cstdio>
#include <filesystem>
#include <functional>  // std::divides
#include <numeric>     // std::accumulate

#include "core/base/status.h"
#include "tools/compare/comparison.h"
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

}  // namespace

absl::Status ShowComparison(const std::vector<RunRecord>& runs, std::string html, bool pictures) {
  if (html.empty()) html = (CommonDirectory(runs) / "comparison.html").string();
  LS_RETURN_IF_ERROR(CheckOutputs({OutputThatBeginsWith(html, "an HTML page", "<!DOCTYPE html>")}));
  const Report report = ComparisonReport(CompareRuns(runs));
  std::fputs(TextOf(report).c_str(), stdout);
  return WritePage(report, "report", html, pictures ? Pictures::kBesidePage : Pictures::kNone);
}

}  // namespace lockstep
