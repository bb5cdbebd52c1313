#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/report/cost_prediction.h"
#include "core/report/run_description.h"
#include "core/report/time_prediction.h"
#include "core/tensor/memory.h"

namespace lockstep {

// A tensor that one block of the model hands to a later one, past those between them.
struct ForecastSkip {
  std::string name;
  std::string from, to;  // blocks
  int64_t bytes = 0;     // of one sample
};

// What a run is going to cost, before it has begun.
struct CostForecast {
  std::vector<CostPrediction> costs;  // by rank
  std::vector<MemoryBooks> memory;    // by rank, after some steps over shapes
  TimePrediction time;
  std::vector<ForecastSkip> skips;  // in the order in which they arrive
};

// The forecast as a text: memory by class and what is sent, the most of any rank; the share of a
// step spent waiting for other stages; the way of each skip; and the time of a step with what it is
// made of on rank 0.
std::string CostForecastText(const RunDescription& run, const CostForecast& forecast);

}  // namespace lockstep
