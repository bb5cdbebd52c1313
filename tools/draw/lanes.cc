#include "tools/draw/lanes.h"

#include <cmath>
#include <map>

#include "absl/strings/str_format.h"
#include "tools/draw/svg.h"

namespace lockstep {
namespace {

constexpr double kRowHeight = 30;
constexpr double kRowGap = 10;
constexpr double kAxisHeight = 34;
constexpr double kAxisSpacing = 60;  // of the axis's lines, at least
constexpr double kKeyHeight = 26;
constexpr double kTextSize = 12;  // in bars and in the key

// 1, 2 or 5 times a power of ten: from one line of the axis to the next.
double AxisStep(double at_least) {
  const double power = std::pow(10, std::floor(std::log10(at_least)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (step * power >= at_least) return step * power;
  }
  return 10 * power;
}

// Lines at round numbers, through the rows from `kHeaderHeight` to `bottom`, with what they stand
// for below.
std::string AxisSvg(const Lanes& lanes, double left, double bottom, double scale) {
  std::string svg;
  const double step = AxisStep(kAxisSpacing / scale);
  for (double time = 0; time <= lanes.total * (1 + 1e-9); time += step) {
    const double x = left + time * scale;
    absl::StrAppendFormat(&svg, "<path d=\"M%.1f %.1fV%.1f\" stroke=\"%s\"/>\n", x,
                          kHeaderHeight - 6, bottom + 6, kLine);
    svg += SvgText(x, bottom + 20, absl::StrFormat("%g%s", time, lanes.unit),
                   {.size = 11, .colour = kSoftInk, .anchor = "middle"});
  }
  return svg;
}

std::string BarSvg(const Lanes::Bar& bar, const Box& box) {
  std::string svg = SvgRectangle(box, 3, FilledWith(bar.work->colour, bar.paleness), bar.tooltip);
  if (!bar.number.empty() && TextWidth(bar.number, kTextSize) + 4 <= box.width) {
    svg += SvgText(box.middle_x(), box.middle_y() + 4.5, bar.number,
                   {.size = kTextSize, .anchor = "middle"});
  }
  return svg;
}

std::string Key(const Lanes& lanes, double y) {
  std::map<int, const char*> names;  // by colour
  for (const auto& rank : lanes.ranks) {
    for (const Lanes::Bar& bar : rank) names[bar.work->colour] = bar.work->name;
  }
  const TextStyle style = {.size = kTextSize, .colour = kSoftInk};
  std::string svg;
  double x = kMargin;
  for (const auto& [colour, name] : names) {
    svg += SvgRectangle({x, y - 11, 14, 14}, 3, FilledWith(colour));
    svg += SvgText(x + 20, y, name, style);
    x += 40 + TextWidth(name, kTextSize);
  }
  return lanes.remark.empty() ? svg : svg + SvgText(x, y, lanes.remark, style);
}

}  // namespace

std::string SvgOf(const Lanes& lanes) {
  const double left = kMargin + kRankLabelWidth, scale = lanes.width / lanes.total;
  const double bottom =
      kHeaderHeight + (kRowHeight + kRowGap) * static_cast<double>(lanes.ranks.size()) - kRowGap;
  std::string svg =
      OpenPicture(left + lanes.width + kMargin, bottom + kAxisHeight + kKeyHeight + 14, lanes.title,
                  lanes.subtitle);
  svg += AxisSvg(lanes, left, bottom, scale);
  double y = kHeaderHeight;
  for (size_t rank = 0; rank < lanes.ranks.size(); ++rank, y += kRowHeight + kRowGap) {
    svg += SvgRankLabel(kMargin, y + kRowHeight / 2, rank);
    for (const Lanes::Bar& bar : lanes.ranks[rank]) {
      svg += BarSvg(bar, {left + bar.begin * scale, y, (bar.end - bar.begin) * scale, kRowHeight});
    }
  }
  return svg + Key(lanes, bottom + kAxisHeight + kKeyHeight / 2 + 6) + "</svg>\n";
}

}  // namespace lockstep
