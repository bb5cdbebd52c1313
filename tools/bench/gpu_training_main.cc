#include "tools/bench/gpu_training.h"

int main(int argc, char** argv) { return lockstep::GpuTrainingMain(argc, argv); }
