#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/config/settings.h"
#include "core/run/leg/rank_in_leg.h"

namespace lockstep {

// Whether ranks come to the same bits in each other's roles: they have the same vector
// instructions, as some products of 16 bits and convolutions depend on them, and sums on GPUs have
// one order for all. Called by all ranks, which compute on GPUs or none does. FailedPrecondition,
// on all of them, says what to set.
absl::Status CheckAreAlike(const Settings& settings, bool on_gpus, Communicator& ranks);

// The ranks of a leg once more, each in the role of another: rank r has the place in the mesh of
// rank r + shift, and so its micro-batches, its stage and its shards. As bits do not depend on who
// computes them, a step comes to the same on both; where it does not, one of two processors is
// wrong. A role is the number of the rank that has it in the leg itself.
//
// Costs each rank another state: parameters, gradients, optimizer state.
class ExchangedRanks {
 public:
  // Called by all ranks of the leg, which are `ranks`, as are the other members. `profiles`: of the
  // blocks, as for RankInLeg. 0 < shift < ranks. Leg and tools outlive it.
  static absl::StatusOr<ExchangedRanks> Make(const TrainingRun& leg, Communicator& ranks,
                                             const RankTools& tools,
                                             const std::vector<BlockProfile>& profiles, int shift);

  // Takes over the state of the ranks of the leg: all of it at first, later what training changes.
  absl::Status Take(Strategy& here, Communicator& ranks);

  // This rank in its other role.
  RankInLeg& there() { return *there_; }
  // Who has the role of this rank.
  int StandIn() const { return StandInOf(there_->ranks().size(), home_); }
  int StandInOf(int role) const { return StandInOf(there_->ranks().size(), role); }

  // What the rank in this rank's role has found, as many numbers as this rank has itself. DataLoss
  // where it has another number of them.
  absl::StatusOr<std::vector<int64_t>> BringHome(const std::vector<int64_t>& found,
                                                 Communicator& ranks) const;

 private:
  ExchangedRanks(std::unique_ptr<Communicator> world, std::unique_ptr<RankInLeg> there, int shift,
                 int home, const RankTools& tools)
      : world_(std::move(world)),
        there_(std::move(there)),
        shift_(shift),
        home_(home),
        tools_(&tools) {}

  int StandInOf(int ranks, int role) const { return (role - shift_ + ranks) % ranks; }

  std::unique_ptr<Communicator> world_;  // of the leg's ranks, in the order of their roles
  std::unique_ptr<RankInLeg> there_;
  int shift_;
  int home_;  // the role of this rank in the leg itself
  const RankTools* tools_;
  bool has_all_ = false;  // also what training leaves as it is
};

}  // namespace lockstep
