#pragma once

#include "core/run/local_model.h"

namespace lockstep {

// The loss of a step, which the last stage has, on all ranks: summed over `shards`, which hold the
// same blocks, and then told to all `stages` by rank `from` there. Called by all of them when they
// have run their passes. Waiting for the other stages is the phase kBubble: here a rank that is
// done waits for those that are not. Throws StatusException.
double ShareLoss(LocalModel& local_model, Communicator& shards, Communicator& stages, int from);

// Adds what it sends.
void AddLossTraffic(const LocalModel& local_model, const Communicator& shards,
                    const Communicator& stages, int from, CostPrediction& prediction);

}  // namespace lockstep
