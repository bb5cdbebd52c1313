#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep {

// Writes PNG files, at twice the pixels of a screen, and returns their paths: of each chart of a
// page of HtmlOf, <path>-<the chart's id>.png, and of the page from its top to the end of its first
// section, <path>.png. The browser that people see the page with draws them (Chromium, without a
// window): its pictures are the page's, and no second renderer is needed.
absl::StatusOr<std::vector<std::string>> WritePictures(const std::string& html,
                                                       const std::string& path);

}  // namespace lockstep
