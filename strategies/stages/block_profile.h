#pragma once

#include <cstdint>
#include <vector>

#include "core/config/settings.h"
#include "core/data/dataset.h"
#include "core/nn/model.h"
#include "core/run/rank.h"

namespace lockstep {

// What a block turned out to need for a micro-batch.
struct BlockProfile {
  double seconds = 0;            // forward and backward; of the last block, with the loss
  int64_t activation_bytes = 0;  // that forward leaves there for backward
  int64_t parameter_bytes = 0;   // values, gradients, masters and optimizer state
};

// Runs the largest micro-batch of training through all of `model`, on this rank alone, forward and
// back, some times: once to warm up, and then for about a second. The times are the shortest seen.
// The model is given up for it: nothing that the run uses is touched, and all memory is given back.
// For as long, the rank holds the whole model with its gradients, without the optimizer's state.
// Throws StatusException, also when there is no room.
std::vector<BlockProfile> ProfileBlocks(Rank& rank, Model model, const Settings& settings,
                                        const Dataset& dataset);

}  // namespace lockstep
