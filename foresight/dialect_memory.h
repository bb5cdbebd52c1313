#pragma once

#include <vector>

#include "foresight/dialect.h"
#include "foresight/lowered_step.h"
#include "foresight/recorded_run.h"

namespace lockstep {

// Bytes of a rank in another framework than ours, which PeakBytes has.
struct DialectMemory {
  double layers = 0;             // values, gradients and optimizer state, without embeddings
  double embeddings = 0;         // values, gradients and optimizer state of embeddings
  double layer_activations = 0;  // the most that is kept for backward, of all micro-batches
  double other_activations = 0;  // of embeddings, logits and loss, at the same time
  double recomputed = 0;         // the most that a recomputed layer keeps for its backward

  double total() const {
    return layers + embeddings + layer_activations + other_activations + recomputed;
  }
};

// How ranks divide the state of the parameters that they train together.
struct DividedState {
  int ranks = 1;           // each updates its part: the optimizer's state is divided
  bool gradients = false;  // and so are gradients
  bool values = false;     // and so are values; those gathered for a layer are not counted
};

// Returns the bytes of the rank at `pp` along pp, whose parameters are those that it updates itself
// and, where state is divided, the other ranks' parts: these lie in flat buffers, so that all count
// as layers. `costs` are those of the lowered step's kernels (StepTime::Costs).
DialectMemory MemoryOf(const RecordedRun& run, const LoweredStep& lowered,
                       const std::vector<KernelCost>& costs, const Dialect& dialect, int pp,
                       const DividedState& divided = {});

}  // namespace lockstep
