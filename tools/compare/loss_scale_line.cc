#include "tools/compare/loss_scale_line.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace lockstep {
namespace {

constexpr int64_t kColumns = 48;
constexpr size_t kNamedSteps = 8;
constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr int kLevels = 8;

std::string Drawing(const std::vector<double>& scales, double lowest, double highest) {
  const auto steps = static_cast<int64_t>(scales.size());
  const int64_t columns = std::min(kColumns, steps);
  const double range = std::log2(highest) - std::log2(lowest);
  std::string drawing;
  for (int64_t column = 0; column < columns; ++column) {
    // A dip must not fall between two columns: each shows the lowest of its steps.
    const double scale = *std::min_element(scales.begin() + column * steps / columns,
                                           scales.begin() + (column + 1) * steps / columns);
    const double height = range > 0 ? (std::log2(scale) - std::log2(lowest)) / range : 1;
    drawing += kBlocks[static_cast<int>(std::lround(height * (kLevels - 1)))];
  }
  return drawing;
}

}  // namespace

std::string LossScaleLine(const RunRecord& run) {
  const std::vector<double>& scales = run.loss_scales;
  if (scales.empty()) return "";
  const auto [lowest, highest] = std::minmax_element(scales.begin(), scales.end());
  std::string line = absl::StrFormat("%g %s %g", scales.front(), Drawing(scales, *lowest, *highest),
                                     scales.back());
  if (*lowest < *highest) {
    absl::StrAppendFormat(&line, ", lowest %g, highest %g", *lowest, *highest);
  }
  std::vector<int64_t> skipped = run.skipped_steps;
  absl::StrAppend(&line, "; skipped ", skipped.size(), skipped.size() == 1 ? " step" : " steps");
  if (skipped.empty()) return line;
  const bool all = skipped.size() <= kNamedSteps;
  if (!all) skipped.resize(kNamedSteps);
  absl::StrAppend(&line, ": ", absl::StrJoin(skipped, ", "), all ? "" : ", ...");
  return line;
}

}  // namespace lockstep
