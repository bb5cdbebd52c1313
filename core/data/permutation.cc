#include "core/data/permutation.h"

#include "glog/logging.h"

namespace lockstep {
namespace {

// Four rounds make a strong pseudo-random permutation (Luby and Rackoff, 1988) of large domains;
// ours may have two bits in a half, where twice as many are needed to spread.
constexpr int kRounds = 8;

}  // namespace

Permutation::Permutation(uint64_t key, int64_t n) : philox_(key), n_(n), half_bits_(1) {
  CHECK_GE(n, 1);
  CHECK_LE(n, int64_t{1} << 62);
  while ((uint64_t{1} << (2 * half_bits_)) < static_cast<uint64_t>(n)) ++half_bits_;
}

int64_t Permutation::At(int64_t place, uint64_t epoch) const {
  CHECK_GE(place, 0);
  CHECK_LT(place, n_);
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t value = static_cast<uint64_t>(place);
  do {
    uint64_t left = value >> half_bits_;
    uint64_t right = value & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t mixed = left ^ (philox_.Block(right | round << 32, epoch)[0] & mask);
      left = right;
      right = mixed;
    }
    value = left << half_bits_ | right;
  } while (value >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(value);
}

}  // namespace lockstep
