#include "strategies/stages/checkpointing.h"

namespace lockstep {

Activations ActivationsOf(int micro_batch, int micro_batches, Checkpointing checkpointing) {
  const bool is_last = micro_batch + 1 == micro_batches;
  const bool keeps = checkpointing == Checkpointing::kNever ||
                     (checkpointing == Checkpointing::kExceptLast && is_last);
  return keeps ? Activations::kKeep : Activations::kRecompute;
}

double MeanForwards(int micro_batches, Checkpointing checkpointing) {
  int forwards = micro_batches;
  for (int i = 0; i < micro_batches; ++i) {
    if (ActivationsOf(i, micro_batches, checkpointing) == Activations::kRecompute) ++forwards;
  }
  return static_cast<double>(forwards) / micro_batches;
}

}  // namespace lockstep
