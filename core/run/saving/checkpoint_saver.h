#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/checkpoint/checkpoint_costs.h"
#include "core/checkpoint/checkpoint_metadata.h"
#include "core/checkpoint/checkpoint_writer.h"
#include "core/comm/communicator.h"
#include "core/report/reporter.h"
#include "core/run/guard/sound_state.h"
#include "core/run/leg/rank_in_leg.h"
#include "core/run/leg/training_run.h"
#include "core/tensor/allocator.h"

namespace lockstep {

// The folder of a run's best checkpoint.
std::string BestFolder(const RunDescription& run);

// What a checkpoint of the run with `steps` steps behind it says of itself; `base` and `sound` as
// below.
CheckpointInfo CheckpointInfoOf(const TrainingRun& run, const std::string& strategy,
                                const std::string& base, const SoundState& sound, int64_t steps);

// Removes best checkpoints that an earlier attempt has saved behind more than `steps` steps: the
// run comes to these steps again. For rank 0, before the run goes on.
void RemoveBestBehind(const RunDescription& run, int64_t steps);

// Saves the checkpoints of a run on one rank, leg after leg, beside training where the
// configuration says so. All ranks of a leg call the same members in the same order. A checkpoint
// that could not be saved is an error, the same on all ranks; but weights that are infinite or NaN,
// which nobody could go on from, are only a note where train.on_nan is "continue".
class CheckpointSaver {
 public:
  // All of them outlive it. `base`: the hash of what is frozen; empty: nothing is. `sound`: what
  // has been checked.
  CheckpointSaver(const TrainingRun& run, const RankTools& tools, const std::string& base,
                  const SoundState& sound)
      : run_(run), tools_(tools), base_(base), sound_(sound) {}

  // Rank 0's, before the first leg is entered; the others have none.
  void set_reporter(Reporter* reporter) { reporter_ = reporter; }

  // The rank begins to train a leg, which outlives the call of Leave; it reserves the memory of
  // copies. Idle ranks enter no leg.
  void Enter(RankInLeg& here);
  // The leg ends after `steps` steps: waits for what is still written.
  absl::Status Leave(int64_t steps);

  // After each step, `step` counted from 0: goes on with what is written, and waits for no disk.
  absl::Status Advance(int64_t step);
  // Saves a checkpoint with `steps` behind it, unless there is one or none is wanted; training goes
  // on.
  absl::Status Save(int64_t steps);
  // The same, and waits until all checkpoints are on the disk.
  absl::Status SaveAndWait(int64_t steps);
  // Saves the state with `steps` behind it as the best of the run, in place of the one before, and
  // waits for the disk.
  absl::Status SaveBest(int64_t steps);
  // Waits for the checkpoint that is being written after `steps` steps, if any.
  absl::Status Finish(int64_t steps);
  // The same, in a run that ends with an error: how the checkpoint went is not told.
  void EndWriting();

  // Called by all ranks of the run between legs: those that were idle learn what has been saved.
  absl::Status Share();

  // Over all legs so far.
  CheckpointCosts costs() const;

 private:
  CheckpointInfo InfoOf(int64_t steps) const;
  std::vector<StateTensor> State() const;
  // Whether a checkpoint with `steps` behind it is wanted, and has not been begun.
  bool IsWanted(int64_t steps) const;
  // What must be on the disk before a checkpoint: the losses of the steps behind it.
  std::function<absl::Status(int64_t steps)> Sync() const;
  // Makes of how a checkpoint went what the run has to know.
  absl::Status Judged(const absl::Status& status);
  // Reports what checkpoints have cost since the last call, and judges what the writer said after
  // `steps` steps.
  absl::Status Told(int64_t steps, const absl::Status& status);

  const TrainingRun& run_;
  const RankTools& tools_;
  const std::string& base_;
  const SoundState& sound_;
  Reporter* reporter_ = nullptr;
  RankInLeg* here_ = nullptr;               // null: idle
  int64_t saved_steps_ = 0;                 // behind the newest checkpoint of this attempt
  CpuAllocator host_;                       // copies of a device's state
  std::optional<CheckpointWriter> writer_;  // of this leg
  CheckpointCosts earlier_;                 // of the writers of earlier legs
  CheckpointCosts reported_;                // of writer_
};

}  // namespace lockstep
