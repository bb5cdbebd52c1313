#include "tools/compare/show.h"

#include <cstdio>
#include <filesystem>

#include "core/base/status.h"
#include "tools/compare/comparison.h"
#include "tools/compare/report.h"
#include "tools/experiment/paths.h"
#include "tools/report/html.h"
#include "tools/report/pictures.h"
#include "tools/report/text.h"

namespace lockstep {

namespace fs = std::filesystem;

std::string CommonDirectory(const std::vector<RunRecord>& runs) {
  fs::path common;
  for (size_t i = 0; i < runs.size(); ++i) {
    const fs::path parent =
        (fs::path(runs[i].directory) / "").lexically_normal().parent_path().parent_path();
    if (i == 0) {
      common = parent;
      continue;
    }
    fs::path shared;
    for (auto a = common.begin(), b = parent.begin();
         a != common.end() && b != parent.end() && *a == *b; ++a, ++b) {
      shared /= *a;
    }
    common = shared;
  }
  return common.string();
}

absl::Status ShowComparison(const std::vector<RunRecord>& runs, const ShowOptions& options) {
  const Report report = ComparisonReport(CompareRuns(runs));
  std::fputs(TextOf(report).c_str(), stdout);
  const std::string page = HtmlOf(report);
  LS_RETURN_IF_ERROR(WriteOutput(options.html, page));
  std::printf("\nThe report with its charts is %s\n", options.html.c_str());
  if (!options.pictures) return absl::OkStatus();
  LS_ASSIGN_OR_RETURN(const std::vector<std::string> pictures,
                      WritePictures(page, fs::path(options.html).replace_extension().string()));
  for (const std::string& picture : pictures) std::printf("  %s\n", picture.c_str());
  return absl::OkStatus();
}

}  // namespace lockstep
