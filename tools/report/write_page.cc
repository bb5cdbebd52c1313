#include "tools/report/write_page.h"

#include <cstdio>
#include <filesystem>
#include <vector>

#include "core/base/status.h"
#include "tools/experiment/paths.h"
#include "tools/report/html.h"
#include "tools/report/pictures.h"

namespace lockstep {

absl::Status WritePage(const Report& report, const std::string& what, const std::string& html,
                       Pictures pictures) {
  const std::string page = HtmlOf(report);
  LS_RETURN_IF_ERROR(WriteOutput(html, page));
  std::printf("\nThe %s with its charts is %s\n", what.c_str(), html.c_str());
  if (pictures == Pictures::kNone) return absl::OkStatus();
  LS_ASSIGN_OR_RETURN(
      const std::vector<std::string> paths,
      WritePictures(page, std::filesystem::path(html).replace_extension().string()));
  for (const std::string& path : paths) std::printf("  %s\n", path.c_str());
  return absl::OkStatus();
}

}  // namespace lockstep
