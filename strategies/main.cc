// The program of a strategy, //strategies/<name>:main. presets.bzl says which page and function it
// is compiled with.

#include "core/run/main.h"

#include "foresight/prediction.h"
#include "models/models.h"
#include "strategies/presets.h"
#include STRATEGY_PAGE

int main(int argc, char** argv) {
  return lockstep::TrainMain(argc, argv, lockstep::STRATEGY(), lockstep::MakeModel,
                             lockstep::PredictStepTime, lockstep::LegStrategies());
}
