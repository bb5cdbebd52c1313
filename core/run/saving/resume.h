#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/checkpoint.h"
#include "core/kernels/kernels.h"
#include "core/run/guard/sound_state.h"
#include "core/run/leg/rank_in_leg.h"
#include "core/run/leg/training_run.h"

namespace lockstep {

// The leg of a run that its first step belongs to: where it is resumed, the one that goes on with
// the newest checkpoint. What is wrong with that, Resume says.
const TrainingRun& FirstLegOf(const TrainingRun& run);

// What a checkpoint must belong to for the run to go on from it; `base` as below.
CheckpointOrigin CheckpointOriginOf(const TrainingRun& run, const std::string& base);

// A checkpoint that a run goes on from.
struct Resumed {
  int64_t steps = 0;          // behind it
  int64_t checked_steps = 0;  // behind the newest check of its bits (core/run/guard/sound_state.h)
  std::string path = {};      // its file or folder, on the disk or in memory
  // Newer ones, which were passed over, on the disk and in this machine's memory.
  std::vector<std::string> damaged = {}, passed_copies = {};
};

// Fills the state of a leg's strategy from the newest checkpoint of the run that is sound, in the
// machine's memory (core/checkpoint/in_memory.h) or on the disk. Called by all ranks of the leg,
// which read the same one; `base` is the hash of what is frozen (empty: nothing is). One rank tells
// of each that is passed over: where it is damaged, and in memory also where the run directory
// lacks rows of the steps behind it, as one does that was put back. Changes no file. The same error
// on all ranks: NotFound without checkpoints, FailedPrecondition where the run cannot go on behind
// the one found, or where none is sound, or the newest is not and checkpoint.on_damage is "stop":
// no rank is lost by damage that somebody has to mend first.
absl::StatusOr<Resumed> Resume(const TrainingRun& run, RankInLeg& here, const std::string& base,
                               Kernels& kernels);

// Whether the run directory has the losses of the `steps` behind a copy in memory: one that was put
// back from elsewhere may not, and goes on from its own checkpoints. DataLoss if not: for rank 0.
absl::Status CheckHasRows(const TrainingRun& run, int64_t steps);

// Renames damaged checkpoints, so that nobody takes them for sound, and says so: for rank 0.
absl::Status SetAside(const std::vector<std::string>& damaged);

// Sets aside what a run has saved that wrong bits may be in, and says so. Called by all ranks of a
// leg: rank 0 of the run renames checkpoints on the disk, the first of each machine removes copies
// in its memory. FailedPrecondition names all that could not be set aside.
absl::Status SetAsideSuspects(const TrainingRun& run, const SoundState::Suspects& suspects,
                              int rank);

}  // namespace lockstep
