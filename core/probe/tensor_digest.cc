#include "core/probe/tensor_digest.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>  // std::memcpy
#include <limits>
#include <vector>

#include "core/base/half.h"
#include "core/base/parallel.h"

namespace lockstep {
namespace {

// Elements that one thread digests at once. A constant: sums of squares are added block by block,
// so that they do not depend on the number of threads.
constexpr int64_t kBlock = 1 << 15;

// A finalizer that lets each bit of a number reach all bits (Steele et al., "Fast Splittable
// Pseudorandom Number Generators", OOPSLA 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// An element type: its bits, and the number that they are.
struct F64 {
  using Bits = uint64_t;
  static double Value(Bits bits) { return std::bit_cast<double>(bits); }
};
struct F32 {
  using Bits = uint32_t;
  static double Value(Bits bits) { return std::bit_cast<float>(bits); }
};
struct F16 {
  using Bits = uint16_t;
  static double Value(Bits bits) { return HalfToFloat(bits); }
};
struct BF16 {
  using Bits = uint16_t;
  static double Value(Bits bits) { return BFloat16ToFloat(bits); }
};
struct I64 {
  using Bits = uint64_t;
  static double Value(Bits bits) { return static_cast<double>(static_cast<int64_t>(bits)); }
};
struct I32 {
  using Bits = uint32_t;
  static double Value(Bits bits) { return static_cast<int32_t>(bits); }
};
struct U8 {
  using Bits = uint8_t;
  static double Value(Bits bits) { return bits; }
};

// Adds `count` elements, of which the first has `index` in the whole tensor, in one sweep over
// memory. Several sums side by side keep the additions from waiting for each other; the loop over
// them is one vector instruction.
template <typename Type>
void AddElements(const uint8_t* bytes, int64_t count, uint64_t index, TensorDigest& digest) {
  using Bits = typename Type::Bits;
  constexpr int64_t kLanes = 8;
  constexpr double kLargest = std::numeric_limits<double>::max();
  uint64_t first[kLanes] = {}, second[kLanes] = {};
  double squares[kLanes] = {}, largest[kLanes] = {};
  int64_t not_finite[kLanes] = {};
  const auto add = [&](int64_t lane, Bits bits, uint64_t at) {
    // The second word mixes the first one's mixture once more, so that what cancels in one sum does
    // not cancel in the other.
    const uint64_t mixed = Mix(Mix(at + 0x9e3779b97f4a7c15) ^ bits);
    first[lane] += mixed;
    second[lane] += Mix(mixed + 0xd1b54a32d192ed03);
    const double magnitude = std::abs(Type::Value(bits));
    const bool is_finite = magnitude <= kLargest;
    const double finite = is_finite ? magnitude : 0;
    squares[lane] += finite * finite;
    largest[lane] = largest[lane] < finite ? finite : largest[lane];
    not_finite[lane] += is_finite ? 0 : 1;
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Bits bits[kLanes];
    std::memcpy(bits, bytes + i * static_cast<int64_t>(sizeof(Bits)), sizeof(bits));
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      add(lane, bits[lane], index + static_cast<uint64_t>(i + lane));
    }
  }
  for (; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, bytes + i * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
    add(i % kLanes, bits, index + static_cast<uint64_t>(i));
  }
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    digest.Add({.hash = {first[lane], second[lane]},
                .squares = squares[lane],
                .largest = largest[lane],
                .not_finite = not_finite[lane]});
  }
}

void AddElements(DType dtype, const uint8_t* bytes, const ElementRange& range,
                 TensorDigest& digest) {
  const auto add = [&]<typename Type>(Type) {
    AddElements<Type>(bytes + range.in_slice * SizeOf(dtype), range.elements,
                      static_cast<uint64_t>(range.in_whole), digest);
  };
  switch (dtype) {
    case DType::kF64:
      return add(F64());
    case DType::kF32:
      return add(F32());
    case DType::kF16:
      return add(F16());
    case DType::kBF16:
      return add(BF16());
    case DType::kI64:
      return add(I64());
    case DType::kI32:
      return add(I32());
    case DType::kU8:
      return add(U8());
  }
}

// The ranges, cut where they cross a boundary of blocks of the slice, and the first of them in each
// block; the last number is theirs.
struct Blocks {
  std::vector<ElementRange> ranges;
  std::vector<size_t> begins;
};

Blocks BlocksOf(const TensorSlice& held) {
  Blocks blocks;
  int64_t left = 0;  // of the present block
  for (ElementRange range : held.ElementRanges()) {
    while (range.elements > 0) {
      if (left == 0) {
        blocks.begins.push_back(blocks.ranges.size());
        left = kBlock;
      }
      ElementRange piece = range;
      piece.elements = std::min(range.elements, left);
      blocks.ranges.push_back(piece);
      left -= piece.elements;
      range.in_slice += piece.elements;
      range.in_whole += piece.elements;
      range.elements -= piece.elements;
    }
  }
  blocks.begins.push_back(blocks.ranges.size());
  return blocks;
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
  const Blocks blocks = BlocksOf(held);
  std::vector<TensorDigest> digests(blocks.begins.size() - 1);
  ParallelFor(std::ssize(digests), 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      for (size_t range = blocks.begins[block]; range < blocks.begins[block + 1]; ++range) {
        AddElements(dtype, bytes, blocks.ranges[range], digests[block]);
      }
    }
  });
  TensorDigest sum;
  for (const TensorDigest& digest : digests) sum.Add(digest);
  return sum;
}

}  // namespace lockstep
