#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/checkpoint_writer.h"
#include "core/checkpoint/machines.h"
#include "core/checkpoint/spread_copies.h"
#include "core/checkpoint/state_tensor.h"
#include "core/config/in_memory_settings.h"
#include "core/report/reporter.h"
#include "core/run/guard/sound_state.h"
#include "core/run/leg/rank_in_leg.h"
#include "core/run/leg/training_run.h"
#include "core/tensor/allocator.h"

namespace lockstep {

// Copies the state of a run into the machine's memory every checkpoint.in_memory_every steps, on
// one rank, leg after leg (core/checkpoint/in_memory.h): each rank writes the part that it would
// write of a checkpoint, with its checksums, and trains on when all have. A rank that is lost
// takes no copy with it, and ranks on any mesh go on from the newest copy, or from a newer
// checkpoint on the disk (Resume). All ranks of a leg call the same members in the same order.
//
// Takes memory for the state once on this machine, all ranks together, and twice while the copy is
// replaced; where ranks are on several machines, for what these and those of one other machine
// save, which is sent here (core/checkpoint/spread_copies.h). Holds the step up for about as long
// as hashing and sending the rank's part takes.
class InMemorySaver {
 public:
  // All of them outlive it. `base`: the hash of what is frozen; empty: nothing is. `sound`: what
  // has been checked.
  InMemorySaver(const TrainingRun& run, const RankTools& tools, const std::string& base,
                const SoundState& sound)
      : run_(run),
        tools_(tools),
        base_(base),
        sound_(sound),
        settings_(InMemorySettingsOf(run.config)) {}

  // Rank 0's, before the first leg is entered; the others have none.
  void set_reporter(Reporter* reporter) { reporter_ = reporter; }

  // The rank begins to train a leg, which outlives the call of Leave. Does nothing in a run without
  // copies, as all other members. The same error on all ranks where there is no room.
  absl::Status Enter(RankInLeg& here);
  void Leave();

  // Whether a copy of the state with `steps` steps behind it is due, on this rank.
  bool IsDue(int64_t steps) const;
  // Copies the state with `steps` steps behind it, where a copy is due. Weights that are infinite
  // or NaN are not copied: the copy before stays.
  absl::Status AfterSteps(int64_t steps);

  // Holds this rank's part of the state to the copy, before the next step begins: for runs with
  // guard.every. Does nothing where the newest copy is not of `steps` steps. DataLoss, which one
  // rank tells, names step, tensor and rank, and whether the state has changed or, by its
  // checksums, the copy.
  absl::Status Compare(int64_t steps);

 private:
  absl::Status MakeFolder(RankInLeg& here, int64_t own_bytes);
  absl::StatusOr<int64_t> BytesHere() const;
  // What the newest copy has of this rank's state; empty where somebody has removed it.
  absl::StatusOr<std::vector<StateTensor>> Read(const std::vector<StateTensor>& state,
                                                int64_t steps) const;
  absl::Status HoldTo(const std::vector<StateTensor>& copy, const std::vector<StateTensor>& state,
                      int64_t steps) const;

  const TrainingRun& run_;
  const RankTools& tools_;
  const std::string& base_;
  const SoundState& sound_;
  const InMemorySettings settings_;
  Reporter* reporter_ = nullptr;
  RankInLeg* here_ = nullptr;  // null: idle
  Machines machines_;          // of the leg's ranks
  // This leg's: the first for ranks on one machine, the second on several; neither in a run without
  // copies.
  std::optional<CheckpointWriter> writer_;
  std::optional<SpreadCopies> spread_;
  int64_t copied_steps_ = -1;  // behind the newest copy of this leg
  mutable CpuAllocator host_;  // what is read back
};

}  // namespace lockstep
