// Fully sharded data parallel: every rank keeps a shard of the model.

#include "core/run/main.h"

#include "models/models.h"
#include "strategies/fsdp/fsdp.h"

int main(int argc, char** argv) {
  return lockstep::TrainMain(argc, argv, lockstep::FsdpStrategy(), lockstep::MakeModel);
}
