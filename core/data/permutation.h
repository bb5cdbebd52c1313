#pragma once

#include <cstdint>

#include "core/base/philox.h"

namespace lockstep {

// Random orders of 0, 1, ..., n-1, one per epoch, of which any place can be asked for by itself:
// nothing is stored, so a run resumes in the middle of an epoch and each rank asks for its own
// part.
//
// A Feistel network whose round function is Philox permutes the smallest 2^(2h) >= n numbers (at
// least 256); a result outside of [0, n) is permuted again until it falls inside ("cycle walking",
// Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002): for n > 64 fewer than 4
// times on average.
class Permutation {
 public:
  // Requires 1 <= n <= 2^62.
  Permutation(uint64_t key, int64_t n);

  int64_t size() const { return n_; }

  // The element at `place`, in [0, n), of the order of `epoch`. Half a microsecond or less for n
  // > 64.
  int64_t At(int64_t place, uint64_t epoch) const;

 private:
  Philox philox_;
  int64_t n_;
  int half_bits_;
};

}  // namespace lockstep
