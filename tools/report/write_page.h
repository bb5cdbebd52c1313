#pragma once

#include <string>

#include "absl/status/status.h"
#include "tools/report/report.h"

namespace lockstep {

enum class Pictures { kNone, kBesidePage };

// Writes the page of a report to the file `html` (WriteOutput), and its charts as PNG files beside
// it where they are wanted (WritePictures). Prints "The report with its charts is ...", with `what`
// for "report", and the paths of all pictures.
absl::Status WritePage(const Report& report, const std::string& what, const std::string& html,
                       Pictures pictures);

}  // namespace lockstep
