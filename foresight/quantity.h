#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep {

// What a number with a unit measures, and in what it is counted here.
enum class Dimension {
  kBytes,           // B, with 1000-fold k, M, G, T, P or 1024-fold Ki, Mi, Gi, Ti, Pi
  kSeconds,         // s, ms, us, ns
  kFlops,           // FLOP; k to E before it
  kFlopsPerSecond,  // FLOP/s
  kBytesPerSecond,  // B/s, or bit/s, which may be written without "/s", as networks are: "100Gbit"
};

// The largest number that is read: rounded to fewer digits it is still finite.
inline constexpr double kLargestQuantity = 1e300;

// "80 GB", "2.04TB/s", "1e21FLOP", "5 us", "100Gbit" in the base unit of the dimension: bytes,
// seconds, operations, and these a second. InvalidArgument, with the units that fit, where the unit
// is unknown or of something else, and where the number is below zero or, in the
// base unit, above kLargestQuantity.
absl::StatusOr<double> ParseQuantity(absl::string_view text, Dimension dimension);

// "312 TFLOP/s", "1.50 GB/s": three digits, with the prefix that fits.
std::string FormatQuantity(double value, Dimension dimension);

}  // namespace lockstep
