// The largest values of whole numbers in a configuration. Each is beyond what anybody runs, and
// small enough that products of a model's and a batch's sizes fit into int64.

#pragma once

#include <cfloat>
#include <cstdint>

namespace lockstep {

inline constexpr double kMostSteps = 0x1p40;           // and intervals, counts of samples
inline constexpr double kMostSamplesOfStep = 0x1p24;   // a batch
inline constexpr double kMostTokensOfSample = 0x1p22;  // the context
inline constexpr double kMostClasses = 0x1p24;         // a vocabulary
inline constexpr double kMostLayers = 10'000;
inline constexpr double kMostFeatures = 0x1p20;   // a layer's width
inline constexpr double kMostRowsOfRun = 0x1p40;  // of logits
inline constexpr double kMostExperts = 4096;
inline constexpr int64_t kMostFeaturesOfExperts = int64_t{1} << 24;  // of a layer, together
inline constexpr double kMostThreads = 4096;
inline constexpr double kMostBytes = 0x1p50;
// The longest time that a run may wait: 30 years. In nanoseconds it is a tenth of what int64 holds.
inline constexpr double kMostSeconds = 1e9;
// The largest number that kernels can take, in fp32.
inline constexpr double kLargestFloat = FLT_MAX;

}  // namespace lockstep
