// Blocks divided over ranks, which take turns.

#include "core/run/main.h"

#include "models/models.h"
#include "strategies/layerwise/layerwise.h"

int main(int argc, char** argv) {
  return lockstep::TrainMain(argc, argv, lockstep::LayerwiseStrategy(), lockstep::MakeModel);
}
