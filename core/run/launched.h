#pragma once

#include "core/config/command_line.h"
#include "core/run/training_run.h"

namespace lockstep {

// Trains as one of the processes that mpirun or srun has started, each a rank; Train does it for
// ranks that are threads. Rank 0 writes the run directory, which the others need to see only for
// checkpoints. Returns the exit code, having written to the standard error what there is to say:
// the cause if this rank has reported it or no rank has, and otherwise just whose word to look for.
int TrainLaunched(const CommandLine& command_line, const StrategyDefinition& strategy,
                  const ModelFactory& make_model);

}  // namespace lockstep
