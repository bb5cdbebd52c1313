#pragma once

#include <vector>

#include "core/config/settings.h"
#include "core/data/dataset.h"
#include "core/nn/model.h"
#include "core/report/block_profile.h"
#include "core/run/leg/training_run.h"
#include "core/run/strategy/rank.h"

namespace lockstep {

// Runs the largest micro-batch of training through all of `model`, on this rank alone, forward and
// back, some times: once to warm up, and then for about a second. The times are the shortest seen.
// The model is given up for it: nothing that the run uses is touched, and all memory is given back.
// For as long, the rank holds the whole model with its gradients, without the optimizer's state.
// Throws StatusException, also when there is no room.
std::vector<BlockProfile> ProfileBlocks(Rank& rank, Model model, const Settings& settings,
                                        const Dataset& dataset);

// Returns the profiles that rank 0 measures so, of a model of its own, on all ranks; none where the
// run's strategy does not ask for them. Called by all ranks together. Throws StatusException.
std::vector<BlockProfile> ProfilesOfRun(const TrainingRun& run, Rank& rank);

}  // namespace lockstep
