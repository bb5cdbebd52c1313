#include "tools/schedule/text.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/report/report.h"
#include "tools/report/text.h"
#include "tools/schedule/bubble.h"

namespace lockstep {
namespace {

// Units of time in a row at most; beyond, a unit is longer than the shortest action.
constexpr double kMaxUnits = 400;
// From one number of the ruler to the next, in units.
constexpr int kRulerStep = 5;

size_t LongestName(const Schedule& schedule) {
  size_t longest = 0;
  for (const auto& rank : schedule.ranks) {
    for (const Action& action : rank) {
      longest = std::max(longest, ToString(action, schedule.has_several_stages_a_rank()).size());
    }
  }
  return longest;
}

bool AllAlike(const std::vector<StageCosts>& costs) {
  return std::ranges::all_of(costs, [&](const StageCosts& other) {
    return other.forward == costs[0].forward && other.input_gradient == costs[0].input_gradient &&
           other.weight_gradient == costs[0].weight_gradient;
  });
}

// Time as characters.
struct Scale {
  explicit Scale(const TimedSchedule& timed)
      : unit(std::max(ShortestAction(timed.simulation), timed.simulation.total / kMaxUnits)),
        width(LongestName(timed.schedule) + 1),
        columns(At(timed.simulation.total)) {}

  size_t At(double time) const {
    return static_cast<size_t>(std::lround(time / unit * static_cast<double>(width)));
  }

  double unit;
  size_t width;    // of a unit
  size_t columns;  // of a row
};

std::string Ruler(const Scale& scale) {
  std::string row(scale.columns + 8, ' ');
  for (size_t units = 0; units * scale.width <= scale.columns; units += kRulerStep) {
    const std::string number = absl::StrFormat("%g", static_cast<double>(units) * scale.unit);
    if (units * scale.width + number.size() > row.size()) break;
    row.replace(units * scale.width, number.size(), number);
  }
  return row;
}

std::string Row(const Scale& scale, const std::vector<Simulation::Timed>& actions,
                bool with_stage) {
  std::string row(scale.columns, ' ');
  for (size_t at = 0; at < scale.columns; at += scale.width) row[at] = '.';
  for (const auto& [action, begin, end] : actions) {
    const size_t first = scale.At(begin), size = std::max(scale.At(end) - first, size_t{1});
    const std::string name = ToString(action, with_stage);
    std::string box = name;
    box.resize(size, '=');
    if (size > name.size()) box.back() = ' ';  // keeps neighbours apart
    row.replace(first, size, box);
  }
  return row;
}

}  // namespace

double ShortestAction(const Simulation& simulation) {
  double shortest = simulation.total;
  for (const auto& rank : simulation.ranks) {
    for (const auto& [action, begin, end] : rank) shortest = std::min(shortest, end - begin);
  }
  return shortest;
}

std::string ScheduleTitle(const Schedule& schedule) {
  const int ranks = static_cast<int>(schedule.ranks.size());
  const std::string stages = !schedule.has_several_stages_a_rank() ? ""
                             : schedule.stages() % ranks == 0
                                 ? absl::StrCat(" with ", schedule.stages() / ranks, " stages each")
                                 : absl::StrCat(", ", schedule.stages(), " stages");
  return absl::StrCat(schedule.name, ": ", ranks, ranks == 1 ? " rank" : " ranks", stages, ", ",
                      schedule.micro_batches,
                      schedule.micro_batches == 1 ? " micro-batch" : " micro-batches");
}

std::string GridText(const TimedSchedule& timed) {
  const Scale scale(timed);
  const size_t label = absl::StrCat("rank ", timed.schedule.ranks.size() - 1, "  ").size();
  std::string text;
  const auto add = [&](std::string name, const std::string& row) {
    name.resize(label, ' ');
    absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(name + row), "\n");
  };
  add("time", Ruler(scale));
  for (size_t rank = 0; rank < timed.schedule.ranks.size(); ++rank) {
    add(absl::StrCat("rank ", rank),
        Row(scale, timed.simulation.ranks[rank], timed.schedule.has_several_stages_a_rank()));
  }
  return text;
}

std::string BubbleText(const TimedSchedule& timed) {
  std::string text = absl::StrFormat("bubble %.1f %% of all ranks' time",
                                     100 * timed.simulation.bubble_fraction());
  if (!AllAlike(timed.costs)) return text;
  const auto formula = BubbleInClosedForm(timed.schedule, timed.costs[0]);
  if (!formula) return text;
  absl::StrAppendFormat(&text, "; in closed form %s = %.1f %%%s", formula->text,
                        100 * formula->fraction, timed.transfer > 0 ? " without transfers" : "");
  return text;
}

std::string RankTable(const TimedSchedule& timed) {
  Table table = {.columns = {{.title = "rank"},
                             {.title = "stages", .align = Table::Align::kLeft},
                             {.title = "works"},
                             {.title = "waits"},
                             {.title = "waits, %"},
                             {.title = "activations in flight"}}};
  const double total = timed.simulation.total;
  for (size_t rank = 0; rank < timed.schedule.ranks.size(); ++rank) {
    std::vector<int> stages;
    for (int stage = 0; stage < timed.schedule.stages(); ++stage) {
      if (timed.schedule.rank_of_stage[stage] == static_cast<int>(rank)) stages.push_back(stage);
    }
    double works = 0;
    for (const Simulation::Timed& action : timed.simulation.ranks[rank]) {
      works += action.end - action.begin;
    }
    table.Add({absl::StrCat(rank), absl::StrJoin(stages, " "), absl::StrFormat("%.6g", works),
               absl::StrFormat("%.6g", total - works),
               absl::StrFormat("%.1f", 100 * (1 - works / total)),
               absl::StrCat(PeakActivations(timed.schedule, static_cast<int>(rank)))});
  }
  return TextOf(table);
}

std::string ScheduleReport(const TimedSchedule& timed) {
  return absl::StrCat(ScheduleTitle(timed.schedule), "\n\n", GridText(timed), "\n",
                      absl::StrFormat("takes %.6g\n", timed.simulation.total), BubbleText(timed),
                      "\n\n", RankTable(timed));
}

}  // namespace lockstep
