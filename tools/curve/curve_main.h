#pragma once

namespace lockstep {

// The test of one strategy's loss curve, with its options in `argv`; returns the exit code.
int CurveMain(int argc, char** argv);

}  // namespace lockstep
