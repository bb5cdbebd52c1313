// Data parallel in its plainest form: a call for each gradient.

#include "core/run/main.h"

#include "models/models.h"
#include "strategies/naive_ddp/naive_ddp.h"

int main(int argc, char** argv) {
  return lockstep::TrainMain(argc, argv, lockstep::NaiveDdpStrategy(), lockstep::MakeModel);
}
