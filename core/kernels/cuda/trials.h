// Which of several ways to compute the same thing is the fastest, where a rank may take no other
// bits for it.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/types/span.h"
#include "core/cuda/context.h"
#include "core/tensor/tensor.h"

namespace lockstep::cuda {

// Several candidates that give the same results, candidate 0 being what is taken without trial.
struct Trial {
  int candidates;
  // How often a candidate runs between two events of the rank's stream, behind a run that warms up.
  int timed_runs;
  // Queues a candidate on the rank's stream; returns whether it can be. It may not read what it
  // writes: candidates run one after another.
  std::function<bool(int candidate)> queue;
  // All that a candidate writes, each time completely.
  absl::Span<const Tensor> results;
  // Queues what else is to have the same bits, from what `queue` has just left; null: nothing.
  std::function<bool(int candidate)> queue_further = nullptr;
};

// Returns the fastest candidate among those whose results have the very bits of candidate 0's, in
// each of their runs that is looked at: the first, the further one and the last. Time decides
// between equal results alone, so its noise shows in no number, and two ranks that choose
// differently agree.
//
// Returns nothing where less than half of the elements are finite and not 0: results of other
// orders of sums would be the same as well.
//
// Waits for the stream. The results are left as any candidate has them, also one with other bits.
// Books 16 bytes of workspace while no candidate runs. Throws StatusException where CUDA fails.
std::optional<int> FastestWithSameBits(const CudaContext& context, Allocator& allocator,
                                       const Trial& trial);

}  // namespace lockstep::cuda
