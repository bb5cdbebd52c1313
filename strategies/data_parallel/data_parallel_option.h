#pragma once

#include "absl/status/statusor.h"
#include "core/config/config.h"
#include "core/config/cut_settings.h"
#include "core/config/settings.h"
#include "core/layout/model_layout.h"
#include "strategies/data_parallel/data_parallel.h"
#include "strategies/schedules/schedule.h"

namespace lockstep {

// Reads the table [data_parallel] (docs/configuration.md): what data-parallel ranks divide, and how
// gradients are summed. Where gradients are divided, ranks hold the shards of the batch in strides
// (AssignmentOf). InvalidArgument with all problems; a key that the choice of `shard` leaves
// without a meaning is one.
absl::StatusOr<DataParallelMaker> ReadDataParallel(const Config& config, const Settings& settings,
                                                   const Schedule& schedule);

// What the table says is divided; nothing, where it says what is no choice.
Divided ReadDivided(const Config& config);

// Whether sums over data-parallel ranks take in the tokens that ranks along cp have, as one
// collective over the ranks along dp and cp. It goes on with the tree over token leaves, inside of
// that over shards, where all ranks have one shard, or sum one round of shards after the other.
bool SumsTokens(const Settings& settings, Divided divided);

// Who trains which shards of the batch, by what is divided.
ShardAssignment AssignmentOf(Divided divided);

}  // namespace lockstep
