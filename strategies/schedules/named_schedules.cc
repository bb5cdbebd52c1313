#include "strategies/schedules/named_schedules.h"

#include <algorithm>
#include <functional>
#include <iterator>  // std::ssize

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

using Actions = std::vector<Action>;

// Stage s on rank s % `ranks`; `write` adds what a rank does to its list.
Schedule Write(const std::string& name, int ranks, int stages_a_rank, int micro_batches,
               const std::function<void(int rank, Actions& actions)>& write) {
  Schedule schedule = {.name = name, .micro_batches = micro_batches};
  for (int stage = 0; stage < ranks * stages_a_rank; ++stage) {
    schedule.rank_of_stage.push_back(stage % ranks);
  }
  for (int rank = 0; rank < ranks; ++rank) write(rank, schedule.ranks.emplace_back());
  return schedule;
}

// "2F3": stage, kind, micro-batch.
absl::StatusOr<Action> ParseAction(const std::string& cell) {
  const size_t at = cell.find_first_of(kActionLetters);
  if (at != std::string::npos) {
    const size_t kind = absl::string_view(kActionLetters).find(cell[at]);
    Action action = {.kind = static_cast<ActionKind>(kind)};
    const auto read = [](const std::string& text, int* number) {
      return absl::SimpleAtoi(text, number) && *number >= 0 && *number <= kLargestInCsv;
    };
    if (read(cell.substr(0, at), &action.stage) && read(cell.substr(at + 1), &action.micro_batch)) {
      return action;
    }
  }
  return InvalidArgument("'", cell,
                         "' is no action; expected stage, kind (F, B, I or W) and "
                         "micro-batch, such as 2F3; both up to ",
                         kLargestInCsv);
}

struct NamedSchedule {
  const char* name;
  int stages_a_rank;  // 0: any number
  absl::StatusOr<Schedule> (*make)(int ranks, int stages_a_rank, int micro_batches);
};

// One whose number of stages a rank is fixed.
template <auto kMake>
absl::StatusOr<Schedule> Make(int ranks, int /*stages_a_rank*/, int micro_batches) {
  return kMake(ranks, micro_batches);
}

constexpr NamedSchedule kSchedules[] = {
    {"layerwise", 1, Make<LayerwiseSchedule>},
    {"gpipe", 1, Make<GPipeSchedule>},
    {"1f1b", 1, Make<OneForwardOneBackwardSchedule>},
    {"interleaved_1f1b", 0, InterleavedSchedule},
    {"zb_h1", 1, Make<ZeroBubbleSchedule>},
    {"zb_v", kStagesPerRankOfV, Make<ZeroBubbleVSchedule>},
    {"dualpipe_v", kStagesPerRankOfV, Make<DualPipeVSchedule>},
};

// Null where there is none of that name.
const NamedSchedule* FindSchedule(const std::string& name) {
  for (const NamedSchedule& schedule : kSchedules) {
    if (name == schedule.name) return &schedule;
  }
  return nullptr;
}

}  // namespace

Schedule GPipeSchedule(int ranks, int micro_batches) {
  return Write("gpipe", ranks, 1, micro_batches, [=](int rank, Actions& actions) {
    for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward}) {
      for (int i = 0; i < micro_batches; ++i) actions.push_back({kind, rank, i});
    }
  });
}

Schedule OneForwardOneBackwardSchedule(int ranks, int micro_batches) {
  return Write("1f1b", ranks, 1, micro_batches, [=](int rank, Actions& actions) {
    // As many forwards as there are stages behind, before the first backward can come back.
    const int warm_up = std::min(micro_batches, ranks - 1 - rank);
    for (int i = 0; i < warm_up; ++i) actions.push_back({ActionKind::kForward, rank, i});
    for (int i = 0; i < micro_batches; ++i) {
      if (warm_up + i < micro_batches) {
        actions.push_back({ActionKind::kForward, rank, warm_up + i});
      }
      actions.push_back({ActionKind::kBackward, rank, i});
    }
  });
}

absl::StatusOr<Schedule> InterleavedSchedule(int ranks, int stages_a_rank, int micro_batches) {
  if (micro_batches % ranks != 0) {
    return InvalidArgument(
        "the interleaved schedule takes micro-batches in rounds of as many as there "
        "are ranks: ",
        micro_batches, " do not divide by ", ranks);
  }
  const int total = micro_batches * stages_a_rank;
  // In rounds: `ranks` micro-batches through the rank's first stage, then its second, ...
  const auto nth = [=](ActionKind kind, int rank, int n) {
    const int turn = n / ranks % stages_a_rank;
    const int own = kind == ActionKind::kForward ? turn : stages_a_rank - 1 - turn;
    return Action{kind, own * ranks + rank, n / (ranks * stages_a_rank) * ranks + n % ranks};
  };
  return Write(
      "interleaved_1f1b", ranks, stages_a_rank, micro_batches, [=](int rank, Actions& actions) {
        const int warm_up = std::min(total, (ranks - 1 - rank) * 2 + (stages_a_rank - 1) * ranks);
        for (int n = 0; n < warm_up; ++n) actions.push_back(nth(ActionKind::kForward, rank, n));
        for (int n = 0; n < total; ++n) {
          if (warm_up + n < total) actions.push_back(nth(ActionKind::kForward, rank, warm_up + n));
          actions.push_back(nth(ActionKind::kBackward, rank, n));
        }
      });
}

Schedule ZeroBubbleSchedule(int ranks, int micro_batches) {
  return Write("zb_h1", ranks, 1, micro_batches, [=](int rank, Actions& actions) {
    const int warm_up = std::min(micro_batches, ranks - 1 - rank);
    for (int i = 0; i < warm_up; ++i) actions.push_back({ActionKind::kForward, rank, i});
    int weights = 0;
    for (int i = 0; i < micro_batches; ++i) {
      const bool has_forward = warm_up + i < micro_batches;
      if (has_forward) actions.push_back({ActionKind::kForward, rank, warm_up + i});
      actions.push_back({ActionKind::kInputGradient, rank, i});
      // Rank r is r weight gradients late while forwards come; after that they fill its waits.
      if (i >= rank || !has_forward) {
        actions.push_back({ActionKind::kWeightGradient, rank, weights++});
      }
    }
    while (weights < micro_batches) {
      actions.push_back({ActionKind::kWeightGradient, rank, weights++});
    }
  });
}

Schedule LayerwiseSchedule(int ranks, int micro_batches) {
  return Write("layerwise", ranks, 1, micro_batches, [=](int rank, Actions& actions) {
    for (int i = 0; i < micro_batches; ++i) {
      actions.push_back({ActionKind::kForward, rank, i});
      actions.push_back({ActionKind::kBackward, rank, i});
    }
  });
}

std::vector<std::string> ScheduleNames() {
  std::vector<std::string> names;
  for (const NamedSchedule& schedule : kSchedules) names.push_back(schedule.name);
  return names;
}

int DefaultStagesPerRank(const std::string& name) {
  const NamedSchedule* schedule = FindSchedule(name);
  return schedule == nullptr ? 1 : std::max(1, schedule->stages_a_rank);
}

absl::StatusOr<Schedule> MakeSchedule(const std::string& name, int ranks, int stages_a_rank,
                                      int micro_batches) {
  const NamedSchedule* schedule = FindSchedule(name);
  if (schedule == nullptr) {
    return absl::NotFoundError(absl::StrCat("there is no schedule '", name, "'; there are ",
                                            absl::StrJoin(ScheduleNames(), ", ")));
  }
  const int has = schedule->stages_a_rank;
  if (has == 0 || has == stages_a_rank) return schedule->make(ranks, stages_a_rank, micro_batches);
  return InvalidArgument(
      "the schedule ", name, " has ", has == 1 ? "one stage" : absl::StrCat(has, " stages"),
      " a rank, not ", stages_a_rank, "; interleaved_1f1b takes several, zb_v and dualpipe_v take ",
      kStagesPerRankOfV);
}

std::string ScheduleToCsv(const Schedule& schedule) {
  std::string csv;
  for (const Actions& actions : schedule.ranks) {
    absl::StrAppend(&csv,
                    absl::StrJoin(actions, ",",
                                  [](std::string* out, const Action& action) {
                                    out->append(ToString(action, /*with_stage=*/true));
                                  }),
                    "\n");
  }
  return csv;
}

absl::StatusOr<Schedule> ScheduleFromCsv(const std::string& csv, const std::string& name) {
  Schedule schedule = {.name = name};
  std::vector<int>& owners = schedule.rank_of_stage;
  std::vector<std::string> rows = absl::StrSplit(csv, '\n');
  while (!rows.empty() && absl::StripAsciiWhitespace(rows.back()).empty()) rows.pop_back();
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    Actions& actions = schedule.ranks.emplace_back();
    int column = 0;
    for (const absl::string_view text : absl::StrSplit(rows[rank], ',')) {
      ++column;
      const std::string cell(absl::StripAsciiWhitespace(text));
      if (cell.empty()) continue;  // a rank that waits
      const absl::StatusOr<Action> action = ParseAction(cell);
      if (!action.ok()) {
        return InvalidArgument(name, ", row ", rank + 1, ", cell ", column, ": ",
                               action.status().message());
      }
      actions.push_back(*action);
      // A stage belongs to the first rank that does anything for it; Validate tells of others.
      if (std::ssize(owners) <= action->stage) owners.resize(action->stage + 1, -1);
      if (owners[action->stage] < 0) owners[action->stage] = static_cast<int>(rank);
      schedule.micro_batches = std::max(schedule.micro_batches, action->micro_batch + 1);
    }
  }
  if (owners.empty()) return InvalidArgument(name, ": holds no action");
  if (const auto nobodys = std::find(owners.begin(), owners.end(), -1); nobodys != owners.end()) {
    return InvalidArgument(name, ": nobody runs stage ", nobodys - owners.begin());
  }
  return schedule;
}

}  // namespace lockstep
