// Stages on ranks, and shards of each stage.

#include "core/run/main.h"

#include "models/models.h"
#include "strategies/fsdp_pipe/fsdp_pipe.h"

int main(int argc, char** argv) {
  return lockstep::TrainMain(argc, argv, lockstep::FsdpPipeStrategy(), lockstep::MakeModel);
}
