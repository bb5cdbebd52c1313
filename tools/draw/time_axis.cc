#include "tools/draw/time_axis.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "tools/draw/svg.h"

namespace lockstep {
namespace {

constexpr double kSpacing = 60;  // of the lines, at least

// 1, 2 or 5 times a power of ten: from one line of the axis to the next.
double AxisStep(double at_least) {
  const double power = std::pow(10, std::floor(std::log10(at_least)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (step * power >= at_least) return step * power;
  }
  return 10 * power;
}

}  // namespace

std::string SvgTimeAxis(const TimeAxis& axis, const std::string& unit) {
  std::string svg;
  const double step = AxisStep(kSpacing / axis.scale);
  for (double time = 0; time <= axis.total * (1 + 1e-9); time += step) {
    const double x = axis.left + time * axis.scale;
    absl::StrAppendFormat(&svg, "<path d=\"M%.1f %.1fV%.1f\" stroke=\"%s\"/>\n", x, axis.top,
                          axis.bottom + 6, kLine);
    svg += SvgText(x, axis.bottom + 20, absl::StrFormat("%g%s", time, unit),
                   {.size = 11, .colour = kSoftInk, .anchor = "middle"});
  }
  return svg;
}

}  // namespace lockstep
