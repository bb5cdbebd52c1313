#include "strategies/recompute/checkpointing.h"

namespace lockstep {

Activations ActivationsOf(int micro_batch, int micro_batches, Checkpointing checkpointing) {
  const bool is_last = micro_batch + 1 == micro_batches;
  const bool keeps = checkpointing == Checkpointing::kNever ||
                     (checkpointing == Checkpointing::kExceptLast && is_last);
  return keeps ? Activations::kKeep : Activations::kRecompute;
}

int Forwards(int micro_batch, int micro_batches, Checkpointing checkpointing) {
  return ActivationsOf(micro_batch, micro_batches, checkpointing) == Activations::kKeep ? 1 : 2;
}

double MeanForwards(int micro_batches, Checkpointing checkpointing) {
  int forwards = 0;
  for (int i = 0; i < micro_batches; ++i) forwards += Forwards(i, micro_batches, checkpointing);
  return static_cast<double>(forwards) / micro_batches;
}

}  // namespace lockstep
