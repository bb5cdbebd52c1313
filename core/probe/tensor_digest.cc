#include "core/probe/tensor_digest.h"

#include <algorithm>
#include <cmath>

#include "core/probe/element_values.h"

namespace lockstep {
namespace {

// A finalizer that lets each bit of a number reach all bits (Steele et al., "Fast Splittable
// Pseudorandom Number Generators", OOPSLA 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The second word mixes the first one's mixture once more, so that what cancels in one sum does not
// cancel in the other.
void Hash(uint64_t index, uint64_t bits, std::array<uint64_t, 2>& hash) {
  const uint64_t first = Mix(Mix(index + 0x9e3779b97f4a7c15) ^ bits);
  hash[0] += first;
  hash[1] += Mix(first + 0xd1b54a32d192ed03);
}

}  // namespace

void TensorDigest::Add(const TensorDigest& other) {
  hash[0] += other.hash[0];
  hash[1] += other.hash[1];
  squares += other.squares;
  largest = std::max(largest, other.largest);
  not_finite += other.not_finite;
}

double TensorDigest::norm() const { return std::sqrt(squares); }

TensorDigest DigestOf(DType dtype, const uint8_t* bytes, const TensorSlice& held) {
  TensorDigest digest;
  for (const ElementRange& range : held.ElementRanges()) {
    for (int64_t i = 0; i < range.elements; ++i) {
      const uint64_t bits = BitsAt(dtype, bytes, range.in_slice + i);
      Hash(static_cast<uint64_t>(range.in_whole + i), bits, digest.hash);
      const double value = ValueOf(dtype, bits);
      if (!std::isfinite(value)) {
        ++digest.not_finite;
        continue;
      }
      digest.squares += value * value;
      digest.largest = std::max(digest.largest, std::abs(value));
    }
  }
  return digest;
}

}  // namespace lockstep
