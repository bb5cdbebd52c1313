#pragma once

namespace lockstep {

// Measures how many floating-point operations a second `threads` threads reach at most in fp32, in
// GFLOP/s: chains of independent fused multiply-adds in registers, as wide as the processor has
// them (AVX-512 or AVX2), the best of several short tries. About 0.3 s.
double MeasureFmaLimit(int threads);

}  // namespace lockstep
