#include "tools/schedule/timeline.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/draw/palette.h"
#include "tools/draw/svg.h"
#include "tools/draw/time_axis.h"

namespace lockstep {
namespace {

constexpr double kMargin = 28;
constexpr double kLabelWidth = 64;    // for "rank 63"
constexpr double kHeaderHeight = 88;  // title, bubble, and the space to the first row
constexpr double kRowHeight = 30;
constexpr double kRowGap = 10;
constexpr double kAxisHeight = 34;
constexpr double kKeyHeight = 26;
constexpr double kMinWidth = 620;  // of the rows: room for the lines of text
// An action is at least so wide, as long as the picture stays below the width.
constexpr double kActionWidth = 24;
constexpr double kMaxWidth = 6000;
constexpr double kDigitWidth = 7;

struct KindStyle {
  ActionKind kind;
  int colour;  // of the palette
  const char* name;
};
constexpr KindStyle kKinds[] = {{ActionKind::kForward, 0, "forward"},
                                {ActionKind::kBackward, 2, "backward"},
                                {ActionKind::kInputGradient, 6, "input gradient"},
                                {ActionKind::kWeightGradient, 1, "weight gradient"}};

const KindStyle& StyleOf(ActionKind kind) {
  return *std::find_if(std::begin(kKinds), std::end(kKinds),
                       [kind](const KindStyle& style) { return style.kind == kind; });
}

double PixelsPerTime(const TimedSchedule& timed) {
  double shortest = timed.simulation.total;
  for (const auto& rank : timed.simulation.ranks) {
    for (const auto& [action, begin, end] : rank) shortest = std::min(shortest, end - begin);
  }
  const double wanted = std::max(kActionWidth / shortest, kMinWidth / timed.simulation.total);
  return std::min(wanted, kMaxWidth / timed.simulation.total);
}

// The how-many-eth stage of its rank, of how many.
std::pair<int, int> PlaceOnRank(const Schedule& schedule, int stage) {
  int place = 0, all = 0;
  for (int other = 0; other < schedule.stages(); ++other) {
    if (schedule.rank_of_stage[other] != schedule.rank_of_stage[stage]) continue;
    if (other < stage) ++place;
    ++all;
  }
  return {place, all};
}

std::string ActionSvg(const TimedSchedule& timed, const Simulation::Timed& event, const Box& box) {
  const auto& [action, begin, end] = event;
  const KindStyle& style = StyleOf(action.kind);
  const auto [place, all] = PlaceOnRank(timed.schedule, action.stage);
  const double white = 0.8 - (all > 1 ? 0.45 * place / (all - 1) : 0);
  std::string svg = SvgRectangle(
      box, 3,
      absl::StrFormat("fill=\"%s\" stroke=\"%s\"", Tint(style.colour, white), Colour(style.colour)),
      absl::StrFormat("%s: %s of micro-batch %d at stage %d, %g to %g",
                      ToString(action, timed.schedule.has_several_stages_a_rank()), style.name,
                      action.micro_batch, action.stage, begin, end));
  const std::string number = absl::StrCat(action.micro_batch);
  if (kDigitWidth * static_cast<double>(number.size()) + 4 <= box.width) {
    svg += SvgText(box.middle_x(), box.middle_y() + 4.5, number, {.size = 12, .anchor = "middle"});
  }
  return svg;
}

std::string Key(const Schedule& schedule, double y) {
  std::set<ActionKind> occurring;
  for (const auto& rank : schedule.ranks) {
    for (const Action& action : rank) occurring.insert(action.kind);
  }
  std::string svg;
  double x = kMargin;
  for (const KindStyle& style : kKinds) {
    if (!occurring.contains(style.kind)) continue;
    svg += SvgRectangle(
        {x, y - 11, 14, 14}, 3,
        absl::StrFormat("fill=\"%s\" stroke=\"%s\"", Tint(style.colour), Colour(style.colour)));
    svg += SvgText(x + 20, y, style.name, {.size = 12, .colour = kSoftInk});
    x += 40 + kDigitWidth * static_cast<double>(std::string(style.name).size());
  }
  if (schedule.has_several_stages_a_rank()) {
    svg += SvgText(x, y, "deeper: a later stage of the rank", {.size = 12, .colour = kSoftInk});
  }
  return svg;
}

}  // namespace

std::string Timeline(const TimedSchedule& timed) {
  const double scale = PixelsPerTime(timed), total = timed.simulation.total;
  const double left = kMargin + kLabelWidth;
  const double width = left + std::max(total * scale, kMinWidth) + kMargin;
  const double bottom = kHeaderHeight +
                        (kRowHeight + kRowGap) * static_cast<double>(timed.schedule.ranks.size()) -
                        kRowGap;
  const double height = bottom + kAxisHeight + kKeyHeight + 14;

  std::string svg = OpenSvg(width, height, ScheduleTitle(timed.schedule));
  svg += SvgRectangle({0, 0, width, height}, 14, "fill=\"white\"");
  svg += SvgText(kMargin, 38, ScheduleTitle(timed.schedule), {.size = 18, .weight = "bold"});
  svg += SvgText(kMargin, 61, BubbleText(timed), {.size = 13, .colour = kSoftInk});
  svg += SvgTimeAxis(
      {.left = left, .top = kHeaderHeight - 6, .bottom = bottom, .total = total, .scale = scale});
  for (size_t rank = 0; rank < timed.schedule.ranks.size(); ++rank) {
    const double y = kHeaderHeight + (kRowHeight + kRowGap) * static_cast<double>(rank);
    svg += SvgText(kMargin, y + kRowHeight / 2 + 4.5, absl::StrCat("rank ", rank),
                   {.colour = kSoftInk});
    for (const Simulation::Timed& event : timed.simulation.ranks[rank]) {
      const Box box = {left + event.begin * scale, y, (event.end - event.begin) * scale,
                       kRowHeight};
      svg += ActionSvg(timed, event, box);
    }
  }
  svg += Key(timed.schedule, bottom + kAxisHeight + kKeyHeight / 2 + 6);
  return svg + "</svg>\n";
}

}  // namespace lockstep
