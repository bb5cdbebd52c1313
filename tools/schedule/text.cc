#include "tools/schedule/text.h"

#include <algorithm>
#include <cmath>

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

// Rows of characters against time.
class Grid {
 public:
  explicit Grid(const TimedSchedule& timed)
      : with_stage_(timed.schedule.has_several_stages_a_rank()),
        unit_(std::max(ShortestAction(timed.simulation), timed.simulation.total / kMaxUnits)),
        width_(LongestName(timed.schedule) + 1),
        columns_(At(timed.simulation.total)) {}

  std::string Ruler() const {
    std::string row(columns_ + 8, ' ');
    for (size_t units = 0; units * width_ <= columns_; units += kRulerStep) {
      const std::string number = absl::StrFormat("%g", static_cast<double>(units) * unit_);
      if (units * width_ + number.size() > row.size()) break;
      row.replace(units * width_, number.size(), number);
    }
    return row;
  }

  std::string Row(const std::vector<Simulation::Timed>& actions) const {
    std::string row(columns_, ' ');
    for (size_t at = 0; at < columns_; at += width_) row[at] = '.';
    for (const auto& [action, begin, end] : actions) {
      const size_t first = At(begin), behind = std::max(At(end), first + 1);
      const std::string name = ToString(action, with_stage_);
      for (size_t at = first; at < behind; ++at) {
        row[at] = at - first < name.size() ? name[at - first] : '=';
      }
      // The last character keeps neighbours apart.
      if (behind - first > name.size()) row[behind - 1] = ' ';
    }
    return row;
  }

 private:
  size_t At(double time) const {
    return static_cast<size_t>(std::lround(time / unit_ * static_cast<double>(width_)));
  }

  bool with_stage_;
  double unit_;
  size_t width_;  // of a unit, in characters
  size_t columns_;
};

std::string WithoutEnd(std::string row) {
  row.erase(row.find_last_not_of(' ') + 1);
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
  const Grid grid(timed);
  const size_t label = absl::StrCat("rank ", timed.schedule.ranks.size() - 1, "  ").size();
  std::string text = WithoutEnd(std::string("time").append(label - 4, ' ') + grid.Ruler()) + "\n";
  for (size_t rank = 0; rank < timed.schedule.ranks.size(); ++rank) {
    std::string name = absl::StrCat("rank ", rank);
    name.resize(label, ' ');
    absl::StrAppend(&text, WithoutEnd(name + grid.Row(timed.simulation.ranks[rank])), "\n");
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
