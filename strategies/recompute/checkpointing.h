#pragma once

#include "core/run/strategy/stage_pass.h"

namespace lockstep {

// The micro-batches of which a stage keeps its inputs only, and computes the rest once more in
// backward. kExceptLast: the last one's backward follows its forward, so that recomputation would
// save nothing (torchgpipe).
enum class Checkpointing { kAlways, kExceptLast, kNever };

// What is kept of a micro-batch, one of so many.
inline Activations ActivationsOf(int micro_batch, int micro_batches, Checkpointing checkpointing) {
  const bool is_last = micro_batch + 1 == micro_batches;
  const bool keeps = checkpointing == Checkpointing::kNever ||
                     (checkpointing == Checkpointing::kExceptLast && is_last);
  return keeps ? Activations::kKeep : Activations::kRecompute;
}

// How often a stage runs a micro-batch forward, 1 or 2; and the mean over all micro-batches.
inline int Forwards(int micro_batch, int micro_batches, Checkpointing checkpointing) {
  return ActivationsOf(micro_batch, micro_batches, checkpointing) == Activations::kKeep ? 1 : 2;
}
inline double MeanForwards(int micro_batches, Checkpointing checkpointing) {
  int forwards = 0;
  for (int i = 0; i < micro_batches; ++i) forwards += Forwards(i, micro_batches, checkpointing);
  return static_cast<double>(forwards) / micro_batches;
}

}  // namespace lockstep
