#include "strategies/schedules/named_schedules.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/status.h"
#include "strategies/schedules/v_shaped.h"

namespace lockstep {
namespace {

using Actions = std::vector<Action>;

// Of stages and micro-batches in a file: a typing error should not fill the memory.
constexpr int kMaxIndex = 999;

Schedule Empty(const std::string& name, int ranks, int stages_a_rank, int micro_batches) {
  Schedule schedule = {.name = name, .micro_batches = micro_batches};
  for (int stage = 0; stage < ranks * stages_a_rank; ++stage) {
    schedule.rank_of_stage.push_back(stage % ranks);
  }
  schedule.ranks.resize(ranks);
  return schedule;
}

bool IsVShaped(const std::string& name) { return name == "zb_v" || name == "dualpipe_v"; }

// "2F3": stage, kind, micro-batch.
absl::StatusOr<Action> ParseAction(const std::string& cell) {
  constexpr std::pair<char, ActionKind> kKinds[] = {{'F', ActionKind::kForward},
                                                    {'B', ActionKind::kBackward},
                                                    {'I', ActionKind::kInputGradient},
                                                    {'W', ActionKind::kWeightGradient}};
  for (const auto& [letter, kind] : kKinds) {
    const size_t at = cell.find(letter);
    if (at == std::string::npos) continue;
    Action action = {.kind = kind};
    const auto read = [](const std::string& text, int* number) {
      return absl::SimpleAtoi(text, number) && *number >= 0 && *number <= kMaxIndex;
    };
    if (read(cell.substr(0, at), &action.stage) && read(cell.substr(at + 1), &action.micro_batch)) {
      return action;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", cell,
                   "' is no action; expected stage, kind (F, B, I or W) and "
                   "micro-batch, such as 2F3; both up to ",
                   kMaxIndex));
}

}  // namespace

Schedule GPipeSchedule(int ranks, int micro_batches) {
  Schedule schedule = Empty("gpipe", ranks, 1, micro_batches);
  for (int rank = 0; rank < ranks; ++rank) {
    for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward}) {
      for (int i = 0; i < micro_batches; ++i) schedule.ranks[rank].push_back({kind, rank, i});
    }
  }
  return schedule;
}

Schedule OneForwardOneBackwardSchedule(int ranks, int micro_batches) {
  Schedule schedule = Empty("1f1b", ranks, 1, micro_batches);
  for (int rank = 0; rank < ranks; ++rank) {
    Actions& actions = schedule.ranks[rank];
    // As many forwards as there are stages behind, before the first backward can come back.
    const int warm_up = std::min(micro_batches, ranks - 1 - rank);
    for (int i = 0; i < warm_up; ++i) actions.push_back({ActionKind::kForward, rank, i});
    for (int i = 0; i < micro_batches; ++i) {
      if (warm_up + i < micro_batches) {
        actions.push_back({ActionKind::kForward, rank, warm_up + i});
      }
      actions.push_back({ActionKind::kBackward, rank, i});
    }
  }
  return schedule;
}

absl::StatusOr<Schedule> InterleavedSchedule(int ranks, int stages_a_rank, int micro_batches) {
  if (micro_batches % ranks != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the interleaved schedule takes micro-batches in rounds of as many as there "
                     "are ranks: ",
                     micro_batches, " do not divide by ", ranks));
  }
  Schedule schedule = Empty("interleaved_1f1b", ranks, stages_a_rank, micro_batches);
  const int total = micro_batches * stages_a_rank;
  // In rounds: `ranks` micro-batches through the rank's first stage, then its second, ...
  const auto nth = [&](ActionKind kind, int rank, int n) {
    const int turn = n / ranks % stages_a_rank;
    const int own = kind == ActionKind::kForward ? turn : stages_a_rank - 1 - turn;
    return Action{kind, own * ranks + rank, n / (ranks * stages_a_rank) * ranks + n % ranks};
  };
  for (int rank = 0; rank < ranks; ++rank) {
    Actions& actions = schedule.ranks[rank];
    const int warm_up = std::min(total, (ranks - 1 - rank) * 2 + (stages_a_rank - 1) * ranks);
    for (int n = 0; n < warm_up; ++n) actions.push_back(nth(ActionKind::kForward, rank, n));
    for (int n = 0; n < total; ++n) {
      if (warm_up + n < total) actions.push_back(nth(ActionKind::kForward, rank, warm_up + n));
      actions.push_back(nth(ActionKind::kBackward, rank, n));
    }
  }
  return schedule;
}

Schedule ZeroBubbleSchedule(int ranks, int micro_batches) {
  Schedule schedule = Empty("zb_h1", ranks, 1, micro_batches);
  for (int rank = 0; rank < ranks; ++rank) {
    Actions& actions = schedule.ranks[rank];
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
  }
  return schedule;
}

Schedule LayerwiseSchedule(int ranks, int micro_batches) {
  Schedule schedule = Empty("layerwise", ranks, 1, micro_batches);
  for (int rank = 0; rank < ranks; ++rank) {
    for (int i = 0; i < micro_batches; ++i) {
      schedule.ranks[rank].push_back({ActionKind::kForward, rank, i});
      schedule.ranks[rank].push_back({ActionKind::kBackward, rank, i});
    }
  }
  return schedule;
}

std::vector<std::string> ScheduleNames() {
  return {"layerwise", "gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zb_v", "dualpipe_v"};
}

int DefaultStagesPerRank(const std::string& name) {
  return IsVShaped(name) ? kStagesPerRankOfV : 1;
}

absl::StatusOr<Schedule> MakeSchedule(const std::string& name, int ranks, int stages_a_rank,
                                      int micro_batches) {
  const std::vector<std::string> names = ScheduleNames();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    return absl::NotFoundError(
        absl::StrCat("there is no schedule '", name, "'; there are ", absl::StrJoin(names, ", ")));
  }
  if (name == "interleaved_1f1b") return InterleavedSchedule(ranks, stages_a_rank, micro_batches);
  if (IsVShaped(name) && stages_a_rank != kStagesPerRankOfV) {
    return absl::InvalidArgumentError(absl::StrCat("the schedule ", name, " has ",
                                                   kStagesPerRankOfV, " stages a rank, not ",
                                                   stages_a_rank, "; interleaved_1f1b takes any"));
  }
  if (name == "zb_v") return ZeroBubbleVSchedule(ranks, micro_batches);
  if (name == "dualpipe_v") return DualPipeVSchedule(ranks, micro_batches);
  if (stages_a_rank != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the schedule ", name, " has one stage a rank, not ", stages_a_rank,
        "; interleaved_1f1b takes several, zb_v and dualpipe_v take ", kStagesPerRankOfV));
  }
  if (name == "layerwise") return LayerwiseSchedule(ranks, micro_batches);
  if (name == "gpipe") return GPipeSchedule(ranks, micro_batches);
  if (name == "1f1b") return OneForwardOneBackwardSchedule(ranks, micro_batches);
  return ZeroBubbleSchedule(ranks, micro_batches);
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
  int stages = 0;
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
        return absl::InvalidArgumentError(absl::StrCat(name, ", row ", rank + 1, ", cell ", column,
                                                       ": ", action.status().message()));
      }
      actions.push_back(*action);
      stages = std::max(stages, action->stage + 1);
      schedule.micro_batches = std::max(schedule.micro_batches, action->micro_batch + 1);
    }
  }
  if (stages == 0) return absl::InvalidArgumentError(absl::StrCat(name, ": holds no action"));
  // A stage belongs to the first rank that does anything for it; Validate tells of others.
  schedule.rank_of_stage.assign(stages, -1);
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    for (const Action& action : schedule.ranks[rank]) {
      int& owner = schedule.rank_of_stage[action.stage];
      if (owner < 0) owner = static_cast<int>(rank);
    }
  }
  for (int stage = 0; stage < stages; ++stage) {
    if (schedule.rank_of_stage[stage] >= 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, ": nobody runs stage ", stage));
  }
  return schedule;
}

}  // namespace lockstep
