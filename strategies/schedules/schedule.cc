#include "strategies/schedules/schedule.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "strategies/schedules/dependencies.h"

namespace lockstep {
namespace {

// The faults of a schedule, cell by cell.
class Checker {
 public:
  explicit Checker(const Schedule& schedule) : schedule_(schedule), seen_(MostActions(schedule)) {}

  // The first ten, and how many more there are.
  std::vector<std::string> Faults() {
    Check();
    if (more_ > 0) faults_.push_back(absl::StrCat("and ", more_, " more"));
    return std::move(faults_);
  }

 private:
  struct Place {
    size_t rank, index;
  };

  void Check() {
    CheckRanks();
    for (size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      for (size_t i = 0; i < schedule_.ranks[rank].size(); ++i) CheckCell(rank, i);
    }
    for (int stage = 0; stage < schedule_.stages(); ++stage) {
      for (int micro_batch = 0; micro_batch < schedule_.micro_batches; ++micro_batch) {
        CheckComplete(stage, micro_batch);
      }
    }
    if (faults_.empty()) CheckProgress();
    if (faults_.empty()) CheckOrders();
  }

  // A short file may name the thousandth stage and micro-batch, and lack a million actions: what
  // nobody reads is not written.
  void AddFault(const std::function<std::string()>& describe) {
    constexpr size_t kMost = 10;
    if (faults_.size() < kMost) {
      faults_.push_back(describe());
    } else {
      ++more_;
    }
  }

  // Where the stage's rank has an action first; it has it.
  Place PlaceOf(const Action& action) const {
    const auto rank = static_cast<size_t>(schedule_.rank_of_stage[action.stage]);
    const std::vector<Action>& actions = schedule_.ranks[rank];
    const auto at = std::find(actions.begin(), actions.end(), action);
    return {rank, static_cast<size_t>(at - actions.begin())};
  }

  std::string Cell(Place place) const {
    const auto [rank, index] = place;
    const Action& action = schedule_.ranks[rank][index];
    return absl::StrCat("rank ", rank, ", action ", index, " (",
                        ToString(action, schedule_.has_several_stages_a_rank()), ")");
  }

  void CheckRanks() {
    for (size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      const std::vector<int>& owners = schedule_.rank_of_stage;
      if (std::find(owners.begin(), owners.end(), static_cast<int>(rank)) == owners.end()) {
        AddFault([&] { return absl::StrCat("rank ", rank, ": has no stage"); });
      }
    }
  }

  void CheckCell(size_t rank, size_t index) {
    const Action& action = schedule_.ranks[rank][index];
    const auto fault = [&](const auto&... what) {
      AddFault([&] { return absl::StrCat(Cell({rank, index}), ": ", what...); });
    };
    if (action.stage < 0 || action.stage >= schedule_.stages()) {
      return fault("there is no stage ", action.stage, ", only ", schedule_.stages());
    }
    if (action.micro_batch < 0 || action.micro_batch >= schedule_.micro_batches) {
      return fault("there is no micro-batch ", action.micro_batch, ", only ",
                   schedule_.micro_batches);
    }
    const int owner = schedule_.rank_of_stage[action.stage];
    if (owner != static_cast<int>(rank)) {
      return fault("stage ", action.stage, " belongs to rank ", owner);
    }
    const size_t number = IndexOf(schedule_, action);
    if (seen_[number]) {
      return AddFault([&] {
        return absl::StrCat(Cell({rank, index}), ": repeats ", Cell(PlaceOf(action)));
      });
    }
    seen_[number] = true;
  }

  bool Has(ActionKind kind, int stage, int micro_batch) const {
    return seen_[IndexOf(schedule_, {kind, stage, micro_batch})];
  }

  void CheckComplete(int stage, int micro_batch) {
    const auto fault = [&](const auto&... what) {
      AddFault([&] {
        return absl::StrCat("rank ", schedule_.rank_of_stage[stage], ", stage ", stage,
                            ", micro-batch ", micro_batch, ": ", what...);
      });
    };
    if (!Has(ActionKind::kForward, stage, micro_batch)) fault("no forward");
    const bool whole = Has(ActionKind::kBackward, stage, micro_batch);
    const bool input = Has(ActionKind::kInputGradient, stage, micro_batch);
    const bool weight = Has(ActionKind::kWeightGradient, stage, micro_batch);
    if (whole && (input || weight)) {
      fault("a whole backward and a half of it");
    } else if (!whole && !input && !weight) {
      fault("no backward");
    } else if (!whole && input != weight) {
      fault("only the half of a backward for its ", input ? "input" : "weights");
    }
  }

  void CheckProgress() {
    const std::vector<size_t> done =
        RunInOrder(schedule_, [](size_t, const Action&, const std::vector<Action>&) {});
    const Dependencies dependencies(schedule_);
    for (size_t rank = 0; rank < done.size(); ++rank) {
      if (done[rank] == schedule_.ranks[rank].size()) continue;
      for (const Action& needed : dependencies.Of(schedule_.ranks[rank][done[rank]])) {
        const Place place = PlaceOf(needed);
        if (place.index < done[place.rank]) continue;
        AddFault([&] {
          return absl::StrCat("deadlock: ", Cell({rank, done[rank]}), " waits for ", Cell(place));
        });
        break;
      }
    }
  }

  // A stage adds up over micro-batches in their order: batch statistics in forwards, and gradients
  // of weights in both halves of a backward (norms and biases in the first, matrices in the
  // second). Then transfers between two stages have one order on both sides too.
  void CheckOrders() {
    for (int stage = 0; stage < schedule_.stages(); ++stage) {
      CheckOrder(stage, {ActionKind::kForward}, "forwards go");
      if (CheckOrder(stage, {ActionKind::kBackward, ActionKind::kInputGradient}, "backwards go")) {
        CheckOrder(stage, {ActionKind::kBackward, ActionKind::kWeightGradient},
                   "weight gradients add up");
      }
    }
  }

  // Whether a stage's actions of these kinds, one for each micro-batch, come in the order of the
  // micro-batches; else tells of the first that does not.
  bool CheckOrder(int stage, const std::vector<ActionKind>& kinds, const std::string& what) {
    const int rank = schedule_.rank_of_stage[stage];
    const std::vector<Action>& actions = schedule_.ranks[rank];
    int turn = 0;
    for (size_t i = 0; i < actions.size(); ++i) {
      if (actions[i].stage != stage ||
          std::find(kinds.begin(), kinds.end(), actions[i].kind) == kinds.end()) {
        continue;
      }
      if (actions[i].micro_batch != turn) {
        AddFault([&] {
          return absl::StrCat(Cell({static_cast<size_t>(rank), i}), ": it is micro-batch ", turn,
                              "'s turn at stage ", stage, "; ", what,
                              " in the order of the micro-batches");
        });
        return false;
      }
      ++turn;
    }
    return true;
  }

  const Schedule& schedule_;
  std::vector<std::string> faults_;
  int64_t more_ = 0;        // faults that nobody is told of
  std::vector<bool> seen_;  // by IndexOf
};

}  // namespace

std::string ToString(const Action& action, bool with_stage) {
  return absl::StrCat(with_stage ? absl::StrCat(action.stage) : "",
                      std::string(1, kActionLetters[static_cast<int>(action.kind)]),
                      action.micro_batch);
}

absl::Status Validate(const Schedule& schedule) {
  const std::vector<std::string> faults = Checker(schedule).Faults();
  if (faults.empty()) return absl::OkStatus();
  return InvalidArgument("schedule ", schedule.name, ":\n  ", absl::StrJoin(faults, "\n  "));
}

bool HalvesBackwards(const Schedule& schedule) {
  for (const std::vector<Action>& actions : schedule.ranks) {
    for (const Action& action : actions) {
      if (action.kind == ActionKind::kWeightGradient) return true;
    }
  }
  return false;
}

int PeakActivations(const Schedule& schedule, int rank) {
  int live = 0, peak = 0;
  for (const Action& action : schedule.ranks[rank]) {
    if (action.kind == ActionKind::kForward) peak = std::max(peak, ++live);
    if (EndsBackward(action.kind)) --live;
  }
  return peak;
}

}  // namespace lockstep
