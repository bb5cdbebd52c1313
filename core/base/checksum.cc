#include "core/base/checksum.h"

#include <cstring>  // std::memcpy

namespace lockstep {
namespace {

// A finalizer that lets each bit of a number reach all bits (Steele et al., "Fast Splittable
// Pseudorandom Number Generators", OOPSLA 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The increment of the same paper's generator: indices far apart.
constexpr uint64_t kIndexStep = 0x9e3779b97f4a7c15;

template <typename Bits>
uint64_t Sum(int64_t first, std::span<const std::byte> elements) {
  uint64_t sum = 0, index = (static_cast<uint64_t>(first) + 1) * kIndexStep;
  for (size_t at = 0; at + sizeof(Bits) <= elements.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, elements.data() + at, sizeof(Bits));
    sum += Mix(index + bits);
    index += kIndexStep;
  }
  return sum;
}

}  // namespace

uint64_t ChecksumOf(int64_t element_bytes, int64_t first, std::span<const std::byte> elements) {
  switch (element_bytes) {
    case 8:
      return Sum<uint64_t>(first, elements);
    case 4:
      return Sum<uint32_t>(first, elements);
    case 2:
      return Sum<uint16_t>(first, elements);
    default:
      return Sum<uint8_t>(first, elements);
  }
}

uint64_t ChecksumOf(std::string_view text) {
  return Sum<uint8_t>(0, std::as_bytes(std::span(text)));
}

}  // namespace lockstep
