#include <algorithm>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "strategies/schedules/named_schedules.h"

namespace lockstep {
namespace {

// The two legs of the V. Forwards go from the first rank to the last down the first leg, and back
// to the first rank up the second leg; gradients go the other way round.
enum Leg { kDown, kUp };

// Writes the list of one rank. Each call adds the next micro-batch of its kind at the rank's stage
// on one leg, so that a stage takes micro-batches in their order.
class RankWriter {
 public:
  RankWriter(int ranks, int rank) : stages_{rank, 2 * ranks - 1 - rank} {}

  void Forward(Leg leg) { Add(ActionKind::kForward, leg, forwards_[leg]++); }
  void Backward(Leg leg) { Add(ActionKind::kBackward, leg, backwards_[leg]++); }
  void InputGradient(Leg leg) {
    without_weights_.emplace_back(leg, backwards_[leg]);
    Add(ActionKind::kInputGradient, leg, backwards_[leg]++);
  }
  // The other half of the oldest backward that has only its input gradient.
  void WeightGradient() {
    const auto [leg, micro_batch] = without_weights_.front();
    without_weights_.pop_front();
    Add(ActionKind::kWeightGradient, leg, micro_batch);
  }
  void AllWeightGradients() {
    while (!without_weights_.empty()) WeightGradient();
  }

  int forwards(Leg leg) const { return forwards_[leg]; }
  std::vector<Action> Take() { return std::move(actions_); }

 private:
  void Add(ActionKind kind, Leg leg, int micro_batch) {
    actions_.push_back({kind, stages_[leg], micro_batch});
  }

  int stages_[2];  // by leg
  int forwards_[2] = {0, 0}, backwards_[2] = {0, 0};
  std::deque<std::pair<Leg, int>> without_weights_;  // leg and micro-batch
  std::vector<Action> actions_;
};

// The list of a rank for `micro_batches` >= 2 x `ranks` - 1.
std::vector<Action> ZeroBubbleVActions(int ranks, int rank, int micro_batches) {
  RankWriter writer(ranks, rank);
  const int behind = ranks - rank;  // ranks from this one to the last, this one included
  // Until the first micro-batch has been down to the last rank and is back up.
  for (int i = 0; i < 2 * behind - 1; ++i) writer.Forward(kDown);
  // Until the first gradient comes down; fills the memory.
  for (int i = 0; i < rank; ++i) {
    writer.Forward(kUp);
    writer.Forward(kDown);
  }
  // Until the first gradient has been down to the last rank and is back. Each forward takes the
  // memory that the weight gradient before it gave back.
  for (int i = 0; i < behind; ++i) {
    writer.Forward(kUp);
    writer.InputGradient(kUp);
    writer.WeightGradient();
  }
  // The steady state: all six actions in turn; at its end, without the forwards that have run out.
  for (int i = 0; i < micro_batches - ranks; ++i) {
    if (writer.forwards(kDown) < micro_batches) writer.Forward(kDown);
    writer.InputGradient(kDown);
    writer.WeightGradient();
    writer.Forward(kUp);
    writer.InputGradient(kUp);
    writer.WeightGradient();
  }
  // What other ranks wait for goes first, and weight gradients fill the waits behind.
  for (int i = 0; i < rank; ++i) {
    writer.InputGradient(kDown);
    writer.InputGradient(kUp);
  }
  for (int i = 0; i < behind; ++i) {
    writer.InputGradient(kDown);
    writer.WeightGradient();
  }
  writer.AllWeightGradients();
  return writer.Take();
}

// The phases are those of DualPipeV's step, by number.
std::vector<Action> DualPipeVActions(int ranks, int rank, int micro_batches) {
  RankWriter writer(ranks, rank);
  const int above = ranks - 1 - rank;  // ranks between this one and the bend of the V
  const int own = rank + 1;
  // 1: until the first micro-batch is at the bend.
  for (int i = 0; i < 2 * above; ++i) writer.Forward(kDown);
  // 2: forwards on both legs.
  for (int i = 0; i < own; ++i) {
    writer.Forward(kDown);
    writer.Forward(kUp);
  }
  // 3: the first gradients, in halves, so that they reach the bend early.
  for (int i = 0; i < above; ++i) {
    writer.InputGradient(kUp);
    writer.WeightGradient();
    writer.Forward(kUp);
  }
  // 4: the main phase: pairs of a forward on one leg and a whole backward on the other.
  for (int i = 0; i < micro_batches - 2 * ranks + own; ++i) {
    writer.Forward(kDown);
    writer.Backward(kUp);
    writer.Forward(kUp);
    writer.Backward(kDown);
  }
  // 5: the down leg has no forwards left.
  for (int i = 0; i < above; ++i) {
    writer.Backward(kUp);
    writer.Forward(kUp);
    writer.Backward(kDown);
  }
  // 6: backwards on both legs, up first; the second half of these 2 x `own` backwards in halves.
  for (int i = 0; i < 2 * own; ++i) {
    const Leg leg = i % 2 == 0 ? kUp : kDown;
    if (i < own) {
      writer.Backward(leg);
    } else {
      writer.InputGradient(leg);
    }
  }
  // 7: weight gradients fill the waits for the last gradients.
  for (int i = 0; i < above; ++i) {
    writer.WeightGradient();
    writer.InputGradient(kDown);
  }
  // 8: what is left.
  writer.AllWeightGradients();
  return writer.Take();
}

Schedule Make(const std::string& name, int ranks, int micro_batches,
              const std::function<std::vector<Action>(int rank)>& actions_of) {
  Schedule schedule = {.name = name, .micro_batches = micro_batches};
  for (int stage = 0; stage < kStagesPerRankOfV * ranks; ++stage) {
    schedule.rank_of_stage.push_back(std::min(stage, 2 * ranks - 1 - stage));
  }
  for (int rank = 0; rank < ranks; ++rank) schedule.ranks.push_back(actions_of(rank));
  return schedule;
}

}  // namespace

Schedule ZeroBubbleVSchedule(int ranks, int micro_batches) {
  // Fewer micro-batches than fill the V are scheduled as the first ones of as many as do.
  const int filled = std::max(micro_batches, 2 * ranks - 1);
  return Make("zb_v", ranks, micro_batches, [&](int rank) {
    std::vector<Action> actions = ZeroBubbleVActions(ranks, rank, filled);
    std::erase_if(actions,
                  [&](const Action& action) { return action.micro_batch >= micro_batches; });
    return actions;
  });
}

absl::StatusOr<Schedule> DualPipeVSchedule(int ranks, int micro_batches) {
  if (micro_batches < 2 * ranks) {
    return InvalidArgument(
        "dualpipe_v needs at least twice as many micro-batches as ranks, ", 2 * ranks, " for ",
        ranks, ", but there are ", micro_batches,
        "; use more micro-batches, fewer ranks, or zb_v, which takes any number");
  }
  return Make("dualpipe_v", ranks, micro_batches,
              [&](int rank) { return DualPipeVActions(ranks, rank, micro_batches); });
}

}  // namespace lockstep
