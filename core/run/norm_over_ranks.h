#pragma once

#include <vector>

#include "core/comm/communicator.h"
#include "core/optim/gradient_norm.h"
#include "core/run/strategy.h"

namespace lockstep {

// The norm of gradients that lie on all ranks of a grid along `axes`, each element counted by one
// of them. A rank's groups outlive it. Throws StatusException.
NormReduction NormOverRanks(const std::vector<Communicator*>& axes);

// Adds what that sends in a step, label "norm": along each axis the largest magnitude, and three
// bins of a sum of squares.
void AddNormTraffic(const std::vector<Communicator*>& axes, CostPrediction& prediction);

}  // namespace lockstep
