#include "tools/schedule/timeline.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/draw/lanes.h"

namespace lockstep {
namespace {

constexpr double kMinWidth = 620;  // of the rows: room for the lines of text
// An action is at least so wide, as long as the rows stay below the width.
constexpr double kActionWidth = 24;
constexpr double kMaxWidth = 6000;

// By ActionKind.
constexpr const WorkKind* kWork[] = {&kForwardWork, &kBackwardWork, &kInputGradientWork,
                                     &kWeightGradientWork};

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

Lanes::Bar BarOf(const Schedule& schedule, const Simulation::Timed& event) {
  const auto& [action, begin, end] = event;
  const WorkKind& work = *kWork[static_cast<int>(action.kind)];
  const auto [place, all] = PlaceOnRank(schedule, action.stage);
  return {.begin = begin,
          .end = end,
          .work = &work,
          .number = absl::StrCat(action.micro_batch),
          .tooltip = absl::StrFormat("%s: %s of micro-batch %d at stage %d, %g to %g",
                                     ToString(action, schedule.has_several_stages_a_rank()),
                                     work.name, action.micro_batch, action.stage, begin, end),
          .paleness = 0.8 - (all > 1 ? 0.45 * place / (all - 1) : 0)};
}

}  // namespace

std::string Timeline(const TimedSchedule& timed) {
  Lanes lanes = {
      .title = ScheduleTitle(timed.schedule),
      .subtitle = BubbleText(timed),
      .total = timed.simulation.total,
      .width = std::clamp(kActionWidth * timed.simulation.total / ShortestAction(timed.simulation),
                          kMinWidth, kMaxWidth)};
  for (const auto& rank : timed.simulation.ranks) {
    std::vector<Lanes::Bar>& bars = lanes.ranks.emplace_back();
    for (const Simulation::Timed& event : rank) bars.push_back(BarOf(timed.schedule, event));
  }
  if (timed.schedule.has_several_stages_a_rank()) {
    lanes.remark = "deeper: a later stage of the rank";
  }
  return SvgOf(lanes);
}

}  // namespace lockstep
