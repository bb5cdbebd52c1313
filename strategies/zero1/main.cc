// Data parallel with divided optimizer state.

#include "core/run/main.h"

#include "models/models.h"
#include "strategies/zero1/zero1.h"

int main(int argc, char** argv) {
  return lockstep::TrainMain(argc, argv, lockstep::Zero1Strategy(), lockstep::MakeModel);
}
