// A strategy that parts from `single` in its second step, as a program: a bias is added on each
// tensor-parallel rank.

#include "core/run/main.h"
#include "models/models.h"
#include "tools/divergence/testing/faults.h"

int main(int argc, char** argv) {
  return lockstep::TrainMain(
      argc, argv, lockstep::FaultNamed("bias added on each tensor-parallel rank").strategy,
      lockstep::MakeModel, [](const lockstep::FinishedRun&) {
        return lockstep::TimePrediction{.missing = "the program has a fault"};
      });
}
