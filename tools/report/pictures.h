#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep {

// Writes each chart of a page of HtmlOf as a PNG file <path>-<the chart's id>.png, at twice the
// pixels that it has on a screen, and returns the files' paths. The browser that people see the
// page with draws them (Chromium, without a window): its pictures are the page's, and no second
// renderer is needed.
absl::StatusOr<std::vector<std::string>> WritePictures(const std::string& html,
                                                       const std::string& path);

}  // namespace lockstep
