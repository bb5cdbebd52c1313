// Blocks divided over ranks, with micro-batches in flight.

#include "core/run/main.h"

#include "models/models.h"
#include "strategies/gpipe/gpipe.h"

int main(int argc, char** argv) {
  return lockstep::TrainMain(argc, argv, lockstep::GPipeStrategy(), lockstep::MakeModel);
}
