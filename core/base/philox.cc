#include "core/base/philox.h"

#include <algorithm>  // std::min
#include <array>
#include <cmath>  // std::sqrt, std::nextafter
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/elementary.h"

namespace lockstep {
namespace {

// The multipliers and key increments of the paper (its table 2 and section 4.3).
constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;  // golden ratio
constexpr uint32_t kWeyl1 = 0xBB67AE85;  // sqrt(3) - 1
constexpr int kRounds = 10;

// Blocks made at once: enough for two AVX-512 registers of each counter word, whose
// multiplications hide each other's latency.
constexpr int kBatch = 32;
constexpr int kWords = 4;

// The words of `kBlocks` consecutive blocks: block i is word[0..3][i]. Word by word, so that the
// compiler vectorises across blocks.
template <int kBlocks>
struct Blocks {
  std::array<std::array<uint32_t, kBlocks>, kWords> word;
};

// Makes the blocks with counters (first_block + i, counter_hi).
template <int kBlocks>
void MakeBlocks(uint64_t key, uint64_t first_block, uint64_t counter_hi, Blocks<kBlocks>& blocks) {
  auto& [c0, c1, c2, c3] = blocks.word;
  for (int i = 0; i < kBlocks; ++i) {
    const uint64_t lo = first_block + i;
    c0[i] = static_cast<uint32_t>(lo);
    c1[i] = static_cast<uint32_t>(lo >> 32);
    c2[i] = static_cast<uint32_t>(counter_hi);
    c3[i] = static_cast<uint32_t>(counter_hi >> 32);
  }
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kBlocks; ++i) {
      const uint64_t p0 = uint64_t{kMultiplier0} * c0[i];
      const uint64_t p1 = uint64_t{kMultiplier1} * c2[i];
      c0[i] = static_cast<uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
      c1[i] = static_cast<uint32_t>(p1);
      c2[i] = static_cast<uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
      c3[i] = static_cast<uint32_t>(p0);
    }
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
}

float ToUniform(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

// Two independent standard normals from two words. Without branches or calls: a loop over it
// vectorises, and each element gets the bits that it gets alone.
inline std::array<float, 2> ToNormals(uint32_t bits0, uint32_t bits1) {
  const double u = (static_cast<double>(bits0) + 0.5) * 0x1p-32;  // in (0, 1): the log is finite
  const double radius = std::sqrt(-2.0 * Log(u));
  const SineAndCosine angle = SineAndCosineOfTurns(static_cast<double>(bits1) * 0x1p-32);
  return {static_cast<float>(radius * angle.cosine), static_cast<float>(radius * angle.sine)};
}

}  // namespace

uint64_t PhiloxKey(uint64_t seed, std::string_view purpose, std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325;  // FNV-1a's offset basis
  const auto add = [&hash](uint8_t byte) { hash = (hash ^ byte) * 0x00000100000001B3; };
  for (int i = 0; i < 8; ++i) add(static_cast<uint8_t>(seed >> (8 * i)));
  for (char c : purpose) add(static_cast<uint8_t>(c));
  add(0);
  for (char c : name) add(static_cast<uint8_t>(c));
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9;
  hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EB;
  return hash ^ (hash >> 31);
}

std::array<uint32_t, 4> Philox::Block(uint64_t counter_lo, uint64_t counter_hi) const {
  Blocks<1> block;
  MakeBlocks(key_, counter_lo, counter_hi, block);
  return {block.word[0][0], block.word[1][0], block.word[2][0], block.word[3][0]};
}

uint32_t Philox::Bits(uint64_t index, uint64_t hi) const {
  return Block(index / kWords, hi)[index % kWords];
}

float Philox::Uniform(uint64_t index, uint64_t hi) const { return ToUniform(Bits(index, hi)); }

float Philox::Normal(uint64_t index, uint64_t hi) const {
  const std::array<uint32_t, 4> block = Block(index / kWords, hi);
  const uint64_t pair = (index % kWords) & ~uint64_t{1};
  return ToNormals(block[pair], block[pair + 1])[index % 2];
}

void Philox::FillBits(std::span<uint32_t> out, uint64_t first_index, uint64_t hi) const {
  // A batch costs about as much as so many single words.
  constexpr size_t kFew = 8;
  Blocks<kBatch> batch;
  for (size_t done = 0, count; done < out.size(); done += count) {
    const uint64_t index = first_index + done;
    const size_t skipped = index % kWords;  // words of the first block
    count = std::min(kBatch * kWords - skipped, out.size() - done);
    uint32_t* destination = out.data() + done;
    if (count < kFew) {
      for (size_t i = 0; i < count; ++i) destination[i] = Bits(index + i, hi);
      continue;
    }
    MakeBlocks(key_, index / kWords, hi, batch);
    if (count == size_t{kBatch} * kWords) {
      for (int i = 0; i < kBatch; ++i) {
        for (int word = 0; word < kWords; ++word) {
          destination[i * kWords + word] = batch.word[word][i];
        }
      }
      continue;
    }
    for (size_t i = 0; i < count; ++i) {
      destination[i] = batch.word[(skipped + i) % kWords][(skipped + i) / kWords];
    }
  }
}

void Philox::FillUniform(std::span<float> out, uint64_t first_index, uint64_t hi, float lower,
                         float upper) const {
  const float width = upper - lower;
  const float largest = std::nextafter(upper, lower);
  std::array<uint32_t, 1024> bits;
  for (size_t begin = 0; begin < out.size(); begin += bits.size()) {
    const size_t count = std::min(bits.size(), out.size() - begin);
    FillBits(std::span(bits).first(count), first_index + begin, hi);
    for (size_t i = 0; i < count; ++i) {
      out[begin + i] = std::min(lower + width * ToUniform(bits[i]), largest);
    }
  }
}

void Philox::FillNormal(std::span<float> out, uint64_t first_index, float mean, float stddev,
                        uint64_t hi) const {
  std::array<uint32_t, 1024> bits;
  size_t done = 0;
  if (first_index % 2 == 1 && !out.empty()) {
    out[0] = mean + stddev * Normal(first_index, hi);
    done = 1;
  }
  while (out.size() - done >= 2) {
    const size_t count = std::min(bits.size(), (out.size() - done) & ~size_t{1});
    FillBits(std::span(bits).first(count), first_index + done, hi);
    for (size_t i = 0; i < count; i += 2) {
      const std::array<float, 2> normals = ToNormals(bits[i], bits[i + 1]);
      out[done + i] = mean + stddev * normals[0];
      out[done + i + 1] = mean + stddev * normals[1];
    }
    done += count;
  }
  if (done < out.size()) out[done] = mean + stddev * Normal(first_index + done, hi);
}

}  // namespace lockstep
