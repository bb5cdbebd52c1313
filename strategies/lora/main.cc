// Adapters on a frozen model, on one rank.

#include "core/run/main.h"

#include "models/models.h"
#include "strategies/lora/lora.h"

int main(int argc, char** argv) {
  return lockstep::TrainMain(argc, argv, lockstep::LoraStrategy(), lockstep::MakeModel);
}
