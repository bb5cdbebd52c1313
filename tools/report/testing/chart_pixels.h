// Whether a page of HtmlOf shows what it should.

#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace lockstep {

// By chart and series: how many pixels of the chart have the colour of the series. A chart whose
// script failed has no series.
using PixelCounts = std::map<std::string, std::map<std::string, int>>;

// Opens the page in Chromium and counts.
absl::StatusOr<PixelCounts> ChartPixels(const std::string& html);

// The charts without any series, and the series that cannot be seen, for a message: "loss: ddp".
// Empty: all is there.
std::string BlankSeries(const PixelCounts& pixels);

}  // namespace lockstep
