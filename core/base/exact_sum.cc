#include "core/base/exact_sum.h"

#include <bit>
#include <cmath>  // std::isfinite, std::nearbyint
#include <cstddef>

namespace lockstep {
namespace {

constexpr int kBins = 12;
constexpr int kBinBits = 24;
constexpr double kBinRange = 0x1p24;  // the unit of a bin in units of the one below

// The unit of each bin: bin i counts multiples of 2^(24 i - 149).
constexpr std::array<double, kBins> Units() {
  std::array<double, kBins> units = {};
  double unit = 0x1p-149;
  for (double& of_bin : units) {
    of_bin = unit;
    unit *= kBinRange;
  }
  return units;
}
constexpr std::array<double, kBins> kUnits = Units();

}  // namespace

void ExactSum::Add(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t exponent = (bits >> 23) & 0xff;
  if (exponent == 0xff) {
    bins_[0] += value;
    return;
  }
  // |value| = mantissa * 2^(place - 149).
  const uint64_t mantissa = (bits & 0x7fffff) | (exponent == 0 ? 0 : 0x800000);
  const uint32_t place = exponent == 0 ? 0 : exponent - 1;
  const uint32_t bin = place / kBinBits;
  const uint64_t in_units = mantissa << (place % kBinBits);
  const double sign = (bits >> 31) == 0 ? 1 : -1;
  bins_[bin] += sign * kUnits[bin] * static_cast<double>(in_units & 0xffffff);
  bins_[bin + 1] += sign * kUnits[bin + 1] * static_cast<double>(in_units >> kBinBits);
}

double ExactSum::Total() const {
  if (!std::isfinite(bins_[0])) return bins_[0];
  // Carries what is above half of the next bin's unit into that bin, exactly. Then the bins do not
  // overlap, and the sum from the smallest to the largest rounds as good as once.
  std::array<double, kBins> bins = bins_;
  for (int i = 0; i + 1 < kBins; ++i) {
    const double carry = std::nearbyint(bins[i] / kUnits[i + 1]) * kUnits[i + 1];
    bins[i] -= carry;
    bins[i + 1] += carry;
  }
  double total = 0;
  for (const double bin : bins) total += bin;
  return total;
}

}  // namespace lockstep
