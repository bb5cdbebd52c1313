#pragma once

#include <compare>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace lockstep {

// What a rank does with one micro-batch at one stage. A backward is done whole, or in two halves:
// the gradient of the stage's input, which the stage before waits for, and those of its weights,
// which nobody waits for before the step ends (Qi et al., "Zero Bubble Pipeline Parallelism",
// 2023).
enum class ActionKind { kForward, kBackward, kInputGradient, kWeightGradient };

struct Action {
  ActionKind kind = ActionKind::kForward;
  int stage = 0;
  int micro_batch = 0;

  friend auto operator<=>(const Action&, const Action&) = default;
};

// How kinds are written, in their order.
inline constexpr char kActionLetters[] = "FBIW";
// "F3", or "2F3" where a rank has several stages: stage 2, forward, micro-batch 3.
std::string ToString(const Action& action, bool with_stage);

// A step of a pipeline as data: for each rank the list of what it does, in order. Transfers follow
// from it: an output goes to the next stage's rank when its forward is done, and its gradient comes
// back likewise.
struct Schedule {
  std::string name;
  int micro_batches = 0;
  std::vector<int> rank_of_stage = {};          // by stage; a rank may have several
  std::vector<std::vector<Action>> ranks = {};  // by rank

  int stages() const { return static_cast<int>(rank_of_stage.size()); }
  bool has_several_stages_a_rank() const { return rank_of_stage.size() > ranks.size(); }
};

// Whether every rank has a stage, every stage runs forward and backward of every micro-batch once,
// on its own rank, all ranks come to their ends, and every stage takes micro-batches in their order
// in all that adds up: forwards (batch statistics), input gradients and weight gradients, each as a
// half of a backward or within a whole one (a gradient is a sum over micro-batches in order, as
// `single` has it). InvalidArgument tells the first ten faults at once, each with its cell: "rank
// 1, action 4 (B2)"; of a deadlock, what each rank waits for.
absl::Status Validate(const Schedule& schedule);

// Whether it is a backward, or the half of one that the stage before waits for; and whether nothing
// of the backward is left to do behind it.
inline bool ReachesInputs(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kInputGradient;
}
inline bool EndsBackward(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kWeightGradient;
}

// Whether any backward is done in two halves.
bool HalvesBackwards(const Schedule& schedule);

// The most micro-batches whose activations a rank keeps at one time, over all its stages: from
// their forward to the end of their backward.
int PeakActivations(const Schedule& schedule, int rank);

}  // namespace lockstep
