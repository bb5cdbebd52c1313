#include "tools/report/testing/chart_pixels.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "nlohmann/json.hpp"
#include "tools/browser/browser.h"

namespace lockstep {
namespace {

constexpr int kVisible = 10;  // pixels

// For each chart and each of its colours, how many pixels have it, roughly: lines are smoothed.
constexpr char kCountColours[] = R"(
  const found = {};
  for (const canvas of document.querySelectorAll('figure canvas')) {
    const chart = Chart.getChart(canvas);
    const counts = {};
    if (chart !== undefined) {
      const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
      const area = chart.chartArea;
      for (const dataset of chart.data.datasets) {
        const colour = dataset.borderColor || dataset.backgroundColor;
        const wanted = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
        let count = 0;
        for (let y = Math.ceil(area.top); y < area.bottom; ++y) {
          for (let x = Math.ceil(area.left); x < area.right; ++x) {
            const at = 4 * (y * canvas.width + x);
            const off = wanted.map((value, i) => Math.abs(value - pixels[at + i]));
            if (Math.max(...off) <= 24) ++count;
          }
        }
        counts[dataset.label] = count;
      }
    }
    found[canvas.closest('figure').id] = counts;
  }
  return found;
)";

}  // namespace

absl::StatusOr<PixelCounts> ChartPixels(const std::string& html) {
  LS_ASSIGN_OR_RETURN(const nlohmann::json found, ResultOfScript(html, kCountColours));
  return found.get<PixelCounts>();
}

std::string BlankSeries(const PixelCounts& pixels) {
  std::vector<std::string> blank;
  for (const auto& [chart, counts] : pixels) {
    if (counts.empty()) blank.push_back(chart);
    for (const auto& [series, count] : counts) {
      if (count < kVisible) blank.push_back(absl::StrCat(chart, ": ", series));
    }
  }
  return absl::StrJoin(blank, ", ");
}

}  // namespace lockstep
