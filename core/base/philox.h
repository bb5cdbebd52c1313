// Random numbers that belong to logical places (contract 4 of the design).
//
// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel Random
// Numbers: As Easy as 1, 2, 3", SC'11. A number is a pure function of (key, index): the key comes
// from the seed, what the numbers are for, and the name of the parameter or layer; the index is
// that of the element in the *unsharded* tensor. Any rank can therefore make any slice alone, and a
// recompute makes the same dropout mask again.

#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

// The key for (seed, purpose, name), e.g. PhiloxKey(seed, "init", "blocks.0.attention.qkv.weight").
// Part of the file formats' promise that a run can be repeated, so it is fixed here and never
// changes: FNV-1a with 64 bits over the seed (8 bytes, little endian), the purpose, one zero byte
// and the name; then the finaliser of SplitMix64, so that similar names give unrelated keys.
uint64_t PhiloxKey(uint64_t seed, std::string_view purpose, std::string_view name);

// One stream of random numbers. A value of two words: cheap to make and to copy, without state, and
// safe to share between threads.
//
// Element `index` of a tensor uses word index % 4 of the block with counter (index / 4, hi). `hi`
// tells repeated draws for the same tensor apart (dropout puts step and micro-batch there). Two
// kinds of numbers drawn at the same (index, hi) are not independent of each other.
class Philox {
 public:
  // The low 32 bits of `key` are the first key word of the paper, the high 32 bits the second.
  explicit Philox(uint64_t key) : key_(key) {}

  uint64_t key() const { return key_; }

  // The four words at a 128-bit counter: words 0 and 1 of the paper's counter are the low and high
  // half of `counter_lo`, words 2 and 3 those of `counter_hi`.
  std::array<uint32_t, 4> Block(uint64_t counter_lo, uint64_t counter_hi) const;

  // 32 random bits for one element.
  uint32_t Bits(uint64_t index, uint64_t hi = 0) const;

  // Uniform on [0, 1): a multiple of 2^-24.
  float Uniform(uint64_t index, uint64_t hi = 0) const;

  // Standard normal, by the transform of Box and Muller in double precision: elements 2k and 2k+1
  // are the cosine and the sine of one pair. |value| < 6.8.
  float Normal(uint64_t index, uint64_t hi = 0) const;

  // The bulk forms: element i of `out` is element first_index + i of the tensor, and gets the very
  // bits that the form for one element gives, wherever the slice begins and however long it is.
  // One thread each (about 0.7 ns a word for bits, 1.5 to 3 ns an element for normals): callers cut
  // a large tensor with ParallelFor.

  void FillBits(std::span<uint32_t> out, uint64_t first_index, uint64_t hi = 0) const;

  // Uniform on [lower, upper): lower + (upper - lower) * Uniform(index, hi), in float, kept below
  // `upper` where that rounds up to it. Requires lower < upper.
  void FillUniform(std::span<float> out, uint64_t first_index, uint64_t hi, float lower,
                   float upper) const;

  // mean + stddev * Normal(index, hi), in float.
  void FillNormal(std::span<float> out, uint64_t first_index, float mean, float stddev,
                  uint64_t hi = 0) const;

 private:
  uint64_t key_;
};

}  // namespace lockstep
