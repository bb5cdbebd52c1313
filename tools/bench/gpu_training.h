#pragma once

namespace lockstep {

// The whole benchmark, with its options in `argv`; returns the exit code.
int GpuTrainingMain(int argc, char** argv);

}  // namespace lockstep
