#pragma once

#include <functional>
#include <vector>

#include "core/report/block_profile.h"
#include "core/report/time_prediction.h"
#include "core/run/leg/training_run.h"
#include "core/run/strategy/strategy.h"

namespace lockstep {

// What a run that is over knows beyond its configuration.
struct FinishedRun {
  const TrainingRun& run;
  std::vector<BlockProfile> profiles;  // by block, if the strategy needs them
  bool are_processes = false;          // the ranks, instead of threads
  bool on_one_machine = true;          // all ranks
};

// Predicts the time of a run's step. It never fails: it says why there is no prediction.
using TimePredictor = std::function<TimePrediction(const FinishedRun&)>;

// The whole main of a strategy's binary: reads the command line, prepares the run, trains; ranks
// are threads, or the processes that mpirun or srun has started. `strategies` are those that the
// run's legs may name. `predict_time` is called by one rank when training is over. Returns the exit
// code: 0, or 1 after one message on the standard error stream that says what is wrong.
int TrainMain(int argc, char** argv, const StrategyDefinition& strategy,
              const ModelFactory& make_model, const TimePredictor& predict_time,
              const std::vector<StrategyDefinition>& strategies = {});

}  // namespace lockstep
