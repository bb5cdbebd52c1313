#include "core/data/permutation.h"

#include "glog/logging.h"

namespace lockstep {
namespace {

// Four rounds make a strong pseudo-random permutation (Luby and Rackoff, 1988) of large domains;
// small ones need more to spread. Halves of 2 bits stay uneven however many rounds there are (the
// test of all orders sees it); with 4 bits nothing shows, and walking is cheap for so small an n.
constexpr int kRounds = 8;
constexpr int kLeastHalfBits = 4;

}  // namespace

Permutation::Permutation(uint64_t key, int64_t n)
    : philox_(key), n_(n), half_bits_(kLeastHalfBits) {
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
