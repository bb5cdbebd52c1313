#pragma once

#include "core/run/stage_pass.h"

namespace lockstep {

// Of which micro-batches a stage keeps its inputs only, and makes the rest once more in backward.
// The last one's backward follows its forward: there is nothing to be saved (torchgpipe).
enum class Checkpointing { kAlways, kExceptLast, kNever };

// What is kept of a micro-batch, one of so many.
Activations ActivationsOf(int micro_batch, int micro_batches, Checkpointing checkpointing);

// How often a micro-batch runs forward, in the mean.
double MeanForwards(int micro_batches, Checkpointing checkpointing);

}  // namespace lockstep
