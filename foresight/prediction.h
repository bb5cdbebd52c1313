#pragma once

#include "core/report/time_prediction.h"
#include "core/run/main.h"

namespace lockstep {

// Predicts the step of a run on this machine, which //tools/plan:calibrate has measured
// (machine_file.h): records the run's own step over shapes and looks its kernels and communication
// up. Costs about as much as the rehearsal that predicts memory.
TimePrediction PredictStepTime(const FinishedRun& finished);

}  // namespace lockstep
