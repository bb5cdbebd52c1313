// Data parallel with divided optimizer state and gradients.

#include "core/run/main.h"

#include "models/models.h"
#include "strategies/zero2/zero2.h"

int main(int argc, char** argv) {
  return lockstep::TrainMain(argc, argv, lockstep::Zero2Strategy(), lockstep::MakeModel);
}
