#pragma once

#include <cstdint>

#include "strategies/schedules/schedule.h"

namespace lockstep {

// Returns a schedule of a few micro-batches in which every stage does all that it does in
// `schedule`. It serves where what an action costs matters, and how many there are does not. A
// shard has `of_shard` micro-batches. Its first and its last are kept, and a few of those between:
// whatever any of these does at a stage (ActionKind), one that is kept does there too. Actions keep
// their order, and micro-batches are numbered anew. It is `schedule` itself where at most three
// micro-batches make a shard. Requires whole shards.
Schedule ExcerptOf(const Schedule& schedule, int64_t of_shard);

}  // namespace lockstep
