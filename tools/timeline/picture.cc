#include "tools/timeline/picture.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/draw/palette.h"
#include "tools/draw/svg.h"
#include "tools/draw/time_axis.h"

namespace lockstep {
namespace {

constexpr double kMargin = 28;
constexpr double kLabelWidth = 64;    // for "rank 63"
constexpr double kHeaderHeight = 88;  // title, how busy ranks were, and the space to the first row
constexpr double kRowHeight = 30;
constexpr double kRowGap = 10;
constexpr double kAxisHeight = 34;
constexpr double kKeyHeight = 26;
constexpr double kRowsWidth = 900;
constexpr double kDigitWidth = 7;

struct KindStyle {
  StepTrace::Kind kind;
  int colour;  // of the palette, as tools/schedule has them
  const char* name;
};
constexpr KindStyle kDrawn[] = {{StepTrace::Kind::kForward, 0, "forward"},
                                {StepTrace::Kind::kBackward, 2, "backward"},
                                {StepTrace::Kind::kOptimizer, 4, "update"}};

const KindStyle* StyleOf(StepTrace::Kind kind) {
  const auto* found = std::find_if(std::begin(kDrawn), std::end(kDrawn),
                                   [kind](const KindStyle& style) { return style.kind == kind; });
  return found == std::end(kDrawn) ? nullptr : found;
}

std::string Attributes(const KindStyle& style) {
  return absl::StrFormat("fill=\"%s\" stroke=\"%s\"", Tint(style.colour), Colour(style.colour));
}

// "step 3 took 41.2 ms; waiting for other stages: rank 0 52 %, rank 1 48 %"
std::string Summary(const StepTrace& trace) {
  std::string text = absl::StrFormat("step %d took %.1f ms; waiting for other stages:", trace.step,
                                     trace.seconds * 1e3);
  for (size_t rank = 0; rank < trace.ranks.size(); ++rank) {
    double waited = 0;
    for (const StepTrace::Phase& phase : trace.ranks[rank].phases) {
      if (phase.kind == StepTrace::Kind::kBubble) waited += phase.end - phase.begin;
    }
    absl::StrAppendFormat(&text, "%s rank %d %.0f %%", rank == 0 ? "" : ",", rank,
                          100 * waited / trace.seconds);
  }
  return text;
}

std::string PhaseSvg(const StepTrace::Phase& phase, const KindStyle& style, const Box& box) {
  const std::string number = phase.micro_batch < 0 ? "" : absl::StrCat(phase.micro_batch);
  std::string svg =
      SvgRectangle(box, 3, Attributes(style),
                   absl::StrFormat("%s%s, %.2f to %.2f ms", style.name,
                                   number.empty() ? "" : absl::StrCat(" of micro-batch ", number),
                                   phase.begin * 1e3, phase.end * 1e3));
  if (!number.empty() && kDigitWidth * static_cast<double>(number.size()) + 4 <= box.width) {
    svg += SvgText(box.middle_x(), box.middle_y() + 4.5, number, {.size = 12, .anchor = "middle"});
  }
  return svg;
}

std::string Key(double y) {
  std::string svg;
  double x = kMargin;
  for (const KindStyle& style : kDrawn) {
    svg += SvgRectangle({x, y - 11, 14, 14}, 3, Attributes(style));
    svg += SvgText(x + 20, y, style.name, {.size = 12, .colour = kSoftInk});
    x += 40 + kDigitWidth * static_cast<double>(std::string(style.name).size());
  }
  return svg;
}

}  // namespace

std::string TimelinePicture(const StepTrace& trace, const std::string& title) {
  const double left = kMargin + kLabelWidth, width = left + kRowsWidth + kMargin;
  const double scale = kRowsWidth / trace.seconds;  // pixels a second
  const double bottom =
      kHeaderHeight + (kRowHeight + kRowGap) * static_cast<double>(trace.ranks.size()) - kRowGap;
  const double height = bottom + kAxisHeight + kKeyHeight + 14;
  std::string svg = OpenSvg(width, height, title);
  svg += SvgRectangle({0, 0, width, height}, 14, "fill=\"white\"");
  svg += SvgText(kMargin, 38, title, {.size = 18, .weight = "bold"});
  svg += SvgText(kMargin, 61, Summary(trace), {.size = 13, .colour = kSoftInk});
  svg += SvgTimeAxis({.left = left,
                      .top = kHeaderHeight - 6,
                      .bottom = bottom,
                      .total = trace.seconds * 1e3,
                      .scale = scale * 1e-3},
                     " ms");
  for (size_t rank = 0; rank < trace.ranks.size(); ++rank) {
    const double y = kHeaderHeight + (kRowHeight + kRowGap) * static_cast<double>(rank);
    svg += SvgText(kMargin, y + kRowHeight / 2 + 4.5, absl::StrCat("rank ", rank),
                   {.colour = kSoftInk});
    for (const StepTrace::Phase& phase : trace.ranks[rank].phases) {
      const KindStyle* style = StyleOf(phase.kind);
      if (style == nullptr) continue;
      svg +=
          PhaseSvg(phase, *style,
                   {left + phase.begin * scale, y, (phase.end - phase.begin) * scale, kRowHeight});
    }
  }
  svg += Key(bottom + kAxisHeight + kKeyHeight / 2 + 6);
  return svg + "</svg>\n";
}

}  // namespace lockstep
