#pragma once

#include "core/run/stage_pass.h"

namespace lockstep {

// The micro-batches of which a stage keeps its inputs only, and computes the rest once more in
// backward. kExceptLast: the last one's backward follows its forward, so that recomputation would
// save nothing (torchgpipe).
enum class Checkpointing { kAlways, kExceptLast, kNever };

// What is kept of a micro-batch, one of so many.
Activations ActivationsOf(int micro_batch, int micro_batches, Checkpointing checkpointing);

// How often a stage runs a micro-batch forward, 1 or 2; and the mean over all micro-batches.
int Forwards(int micro_batch, int micro_batches, Checkpointing checkpointing);
double MeanForwards(int micro_batches, Checkpointing checkpointing);

}  // namespace lockstep
