#pragma once

#include "core/run/strategy.h"
#include "core/run/training_run.h"

namespace lockstep {

// The whole main of a strategy's binary: reads the command line, prepares the run, trains; ranks
// are threads, or the processes that mpirun or srun has started. Returns the exit code: 0, or 1
// after one message on the standard error stream that says what is wrong.
int TrainMain(int argc, char** argv, const StrategyDefinition& strategy,
              const ModelFactory& make_model);

}  // namespace lockstep
