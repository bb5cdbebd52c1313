// One rank, no communication.

#include "core/run/main.h"

#include "models/models.h"
#include "strategies/single/single.h"

int main(int argc, char** argv) {
  return lockstep::TrainMain(argc, argv, lockstep::SingleStrategy(), lockstep::MakeModel);
}
