#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/state_tensor.h"
#include "core/config/settings.h"
#include "core/kernels/kernels.h"
#include "core/nn/probe.h"
#include "core/report/results.h"
#include "core/run/guard/check_schedule.h"
#include "core/run/guard/exchanged_ranks.h"
#include "core/run/guard/sound_state.h"
#include "core/run/leg/rank_in_leg.h"
#include "core/run/record/pass_order.h"
#include "core/tensor/allocator.h"

namespace lockstep {

// What passed through a rank in one run of a step, as hashes, in the order of the rank's work.
class ObservedStep final : public PassProbe {
 public:
  struct Value {
    PassOrder order;
    std::string what;
    uint64_t hash = 0;
  };

  // All of them outlive it. `next` observes the same; null: nobody does.
  ObservedStep(const std::vector<std::string>& blocks, Kernels& kernels, PassProbe* next)
      : blocks_(blocks), kernels_(kernels), next_(next) {}

  void Observe(const ProbedTensor& tensor, const Tensor& value) override;
  void ObserveGradient(const std::string& parameter, const Tensor& gradient) override;
  void ObserveHandedOver(const std::string& what, const Tensor& value) override;
  void ObserveNumbersHandedOver(const std::string& what, std::span<const double> numbers) override;

  const std::vector<Value>& values() const { return values_; }

 private:
  int64_t NumberOf(int64_t micro_batch);
  // Behind what the last micro-batch so far has left.
  void AddBehindBlocks(std::string what, uint64_t hash);

  const std::vector<std::string>& blocks_;
  Kernels& kernels_;
  PassProbe* next_;
  std::map<int64_t, int64_t> micro_batches_;  // in the order in which the rank works on them
  std::vector<Value> values_;
};

// Repeats steps (guard.every) from a copy of the state, and compares hashes of what came of them:
// state, loss, norm of the gradients, and what an ObservedStep has. A rank's work has the same bits
// whoever does it, so a difference is a fault of a processor, a memory or a link; a third run of
// the step decides which of the two was wrong. Between a step that was repeated and the next one,
// a change of mesh, or the last checkpoint, the state is held to its hash too. What no step changes
// (the base under adapters), and all runs of a step use, is held to what it was at first.
//
// Each rank repeats its own work, or (guard.repeat_on = "other_rank") that of another rank. On the
// same rank, what all runs of a step get wrong alike is not seen, such as a unit that always
// computes the same wrong bits; on another rank it is, and a third rank decides whose bits are
// wrong, where there is one. Costs one more step, a copy of the state in host memory, and hashes of
// what leaves blocks and layers; on another rank also the memory of another state (ExchangedRanks),
// and sending it.
class RepeatGuard {
 public:
  // The tools outlive it, and so does `sound`, which hears of wrong bits before anybody tells.
  RepeatGuard(const CheckSchedule& schedule, RepeatOn repeat_on, const RankTools& tools,
              const SoundState& sound)
      : schedule_(schedule),
        repeat_on_(repeat_on),
        tools_(tools),
        kernels_(tools.kernels),
        sound_(sound) {}

  // Before step `step`, counted from 0, of a leg. Called by all ranks of the leg, as is End.
  // DataLoss names the tensor and the rank whose memory has changed since the step before.
  absl::Status Begin(int64_t step, RankInLeg& here);

  // After the step. `again` trains it once more, in the role that it is given. DataLoss, which one
  // rank tells, names step, rank and the first tensor that differed.
  using Again = std::function<StepResult(RankInLeg& where)>;
  absl::Status End(int64_t step, const StepResult& result, RankInLeg& here, const Again& again);

  // Holds the state behind `steps` steps to its hash, if the last of them was repeated: before a
  // checkpoint that no further step follows, and before a change of mesh. Called by all ranks of
  // the leg. DataLoss, as Begin has it.
  absl::Status CheckAtRest(int64_t steps, RankInLeg& here) const;

  // The state is about to change by other means than a step, and the ranks by other means than
  // their roles: a change of mesh.
  void Forget() {
    at_rest_.clear();
    frozen_.reset();
    exchanged_.reset();
  }

 private:
  using Hashes = std::vector<uint64_t>;
  struct Outcome {
    Hashes state;
    double loss = 0;
    double gradient_norm = 0;
    std::vector<ObservedStep::Value> observed;
  };

  // The runs of a step that came to different bits, on this rank or in its role.
  struct Runs {
    Outcome first, second;               // the step, and its repetition
    Outcome third = {};                  // another repetition, on this rank
    std::optional<Outcome> fourth = {};  // on another rank; only where the second was, too
    int second_by = 0, fourth_by = 0;    // the ranks that trained them
  };
  // Whose bits were wrong in this rank's role.
  struct Verdict {
    std::vector<int64_t> suspects;  // one rank, or two where nobody has a majority
    std::string when;               // "in the step, as two repetitions agree"
  };
  // Where two outcomes differ first on this rank: at one of what was observed, else at a tensor of
  // the state, else in loss or norm.
  struct Place {
    int64_t observed = -1, state = -1;
  };

  bool IsDue(int64_t step) const { return schedule_.IsDueBehind(step + 1); }
  // CheckAtRest, whose message names `step`, counted from 1, and says since when.
  absl::Status HoldToRest(int64_t step, const std::string& since, RankInLeg& here) const;
  // Whether what no step changes has the bits that it had at first, by hashes of all the state.
  absl::Status CheckFrozen(int64_t step, const Hashes& state, RankInLeg& here) const;
  Hashes HashesOf(const std::vector<StateTensor>& state) const;
  Outcome OutcomeOf(const StepResult& result, RankInLeg& here) const;
  absl::Status CheckCopy(int64_t step, RankInLeg& here) const;
  // The copy is the state again.
  void Restore(RankInLeg& here) const;
  Outcome Train(RankInLeg& where, const Again& again) const;
  Outcome Repeat(RankInLeg& here, const Again& again);
  // What this rank's work came to on another rank, from the state as it is.
  absl::StatusOr<Outcome> RepeatElsewhere(ExchangedRanks& ranks, RankInLeg& here,
                                          const Outcome& expected, const Again& again) const;
  // Whether two outcomes are the same on all ranks.
  static absl::StatusOr<bool> Agree(const Outcome& a, const Outcome& b, RankInLeg& here);
  // Trains the step again until it is known whose bits were wrong, and says so.
  absl::Status Decide(int64_t step, Runs runs, RankInLeg& here, const Again& again);
  static Place WhereTheyDiffer(const Outcome& a, const Outcome& b);
  static Verdict Judge(const Runs& runs, const Place& place, int rank);
  absl::Status Explain(int64_t step, const Runs& runs, RankInLeg& here) const;

  const CheckSchedule schedule_;
  const RepeatOn repeat_on_;
  const RankTools& tools_;
  Kernels& kernels_;
  const SoundState& sound_;
  CpuAllocator host_;
  std::vector<StateTensor> copy_;  // of what a step changes, in host memory
  Hashes copied_;                  // hashes of copy_
  std::optional<ObservedStep> first_;
  std::optional<ExchangedRanks> exchanged_;  // made when it is needed first
  Hashes at_rest_;                           // hashes of the state between steps; empty: not known
  std::optional<Hashes> frozen_;             // hashes of FrozenState before the leg's first step
};

}  // namespace lockstep
