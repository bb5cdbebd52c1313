// Tensor parallel: layers computed by several ranks together.

#include "core/run/main.h"

#include "models/models.h"
#include "strategies/tp/tp.h"

int main(int argc, char** argv) {
  return lockstep::TrainMain(argc, argv, lockstep::TpStrategy(), lockstep::MakeModel);
}
