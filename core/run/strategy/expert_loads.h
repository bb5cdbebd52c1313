#pragma once

#include <vector>

#include "core/comm/communicator.h"
#include "core/report/cost_prediction.h"
#include "core/report/results.h"
#include "core/run/strategy/local_model.h"

namespace lockstep {

// What each expert of each layer got of the step whose statistics the model has taken up last, on
// all ranks, in the order of the model: zeros where another rank has the layer. Nothing without
// experts, or where their routers are frozen.
std::vector<ExpertLoadOfLayer> ExpertLoads(const LocalModel& local_model);

// The same with the layers of other `stages`: called by all of them. Throws StatusException.
std::vector<ExpertLoadOfLayer> ShareExpertLoads(const LocalModel& local_model,
                                                Communicator& stages);

// Adds what that sends in a step.
void AddExpertLoadTraffic(const LocalModel& local_model, const Communicator& stages,
                          CostPrediction& prediction);

}  // namespace lockstep
