// Data parallel: a replica of the model on every rank.

#include "core/run/main.h"

#include "models/models.h"
#include "strategies/ddp/ddp.h"

int main(int argc, char** argv) {
  return lockstep::TrainMain(argc, argv, lockstep::DdpStrategy(), lockstep::MakeModel);
}
