#include "core/comm/conformance/serial_model.h"

#include <bit>    // std::bit_cast, std::bit_floor
#include <cmath>  // std::abs
#include <cstdint>
#include <cstring>  // std::memcpy
#include <numeric>  // std::accumulate
#include <type_traits>
#include <vector>

#include "core/base/half.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// Numbers between 2^-8 and 2^8, of both signs; for products near 1, so that they stay finite.
double RandomNumber(uint64_t bits, bool near_one) {
  const uint64_t exponent = 1023 + (near_one ? bits & 1 : (bits & 15) - 8);
  return std::bit_cast<double>((bits & 0x800fffffffffff00u) | exponent << 52);
}

template <typename T>
T Load(const Bytes& bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void Store(T value, Bytes& bytes, int64_t i) {
  std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
}

template <typename T>
T Combine(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::kMin:
      return b < a ? b : a;
    case ReduceOp::kMax:
      return b > a ? b : a;
    case ReduceOp::kProduct:
      if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
      } else {
        return a * b;
      }
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
      } else {
        return a + b;
      }
  }
  return a;
}

// Element i of the node over inputs [first, first + count): both halves, the left one of which is
// the largest power of two below `count`, combined as T and rounded to Stored, which lies in
// memory.
template <typename Stored, typename T, typename FromStored, typename ToStored>
Stored NodeOf(ReduceOp op, const std::vector<Bytes>& inputs, size_t first, size_t count, int64_t i,
              FromStored from, ToStored to) {
  if (count == 1) return Load<Stored>(inputs[first], i);
  const size_t left = std::bit_floor(count - 1);
  const Stored a = NodeOf<Stored, T>(op, inputs, first, left, i, from, to);
  const Stored b = NodeOf<Stored, T>(op, inputs, first + left, count - left, i, from, to);
  return to(Combine<T>(op, from(a), from(b)));
}

template <typename Stored, typename T, typename FromStored, typename ToStored>
Bytes ReduceAll(ReduceOp op, const std::vector<Bytes>& inputs, FromStored from, ToStored to) {
  Bytes result(inputs[0].size());
  for (int64_t i = 0; i < static_cast<int64_t>(result.size() / sizeof(Stored)); ++i) {
    Stored root = NodeOf<Stored, T>(op, inputs, 0, inputs.size(), i, from, to);
    if (op == ReduceOp::kAverage) {
      root = to(static_cast<T>(from(root) / static_cast<T>(inputs.size())));
    }
    Store<Stored>(root, result, i);
  }
  return result;
}

template <typename T>
Bytes ReducePlain(ReduceOp op, const std::vector<Bytes>& inputs) {
  const auto same = [](T x) { return x; };
  return ReduceAll<T, T>(op, inputs, same, same);
}

// Elements [begin, begin + count) of the reduction.
Bytes Reduced(const Case& c, int64_t begin, int64_t count) {
  std::vector<Bytes> inputs;
  for (int member = 0; member < c.size(); ++member) {
    inputs.push_back(InputSlice(c, member, begin, count));
  }
  switch (c.dtype) {
    case DType::kF32:
      return ReducePlain<float>(c.reduce_op, inputs);
    case DType::kF64:
      return ReducePlain<double>(c.reduce_op, inputs);
    case DType::kI32:
      return ReducePlain<int32_t>(c.reduce_op, inputs);
    case DType::kI64:
      return ReducePlain<int64_t>(c.reduce_op, inputs);
    case DType::kF16:
      return ReduceAll<uint16_t, float>(c.reduce_op, inputs, HalfToFloat, FloatToHalf);
    case DType::kBF16:
      return ReduceAll<uint16_t, float>(c.reduce_op, inputs, BFloat16ToFloat, FloatToBFloat16);
    case DType::kU8:
      break;
  }
  LOG(FATAL) << "no reduction of " << Name(c.dtype);
}

// Half the distance from 1 to the next number.
double UnitRoundoff(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return 0x1p-8;
    case DType::kF16:
      return 0x1p-11;
    case DType::kF32:
      return 0x1p-24;
    default:
      return 0x1p-53;
  }
}

double NumberAt(const Bytes& bytes, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kBF16:
      return BFloat16ToFloat(Load<uint16_t>(bytes, i));
    case DType::kF16:
      return HalfToFloat(Load<uint16_t>(bytes, i));
    case DType::kF32:
      return Load<float>(bytes, i);
    default:
      return Load<double>(bytes, i);
  }
}

}  // namespace

int64_t Case::total() const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

int64_t Case::begin_of(int member) const {
  return std::accumulate(counts.begin(), counts.begin() + member, int64_t{0});
}

uint64_t RandomBits(uint64_t seed, uint64_t index) {
  // SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
  uint64_t z = seed * 0xd1342543de82ef95u + index * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

int64_t InputCount(const Case& c, int member) {
  switch (c.operation) {
    case Operation::kAllGather:
    case Operation::kGather:
      return c.counts[member];
    case Operation::kScatter:
    case Operation::kBroadcast:
      return member == c.root ? c.total() : 0;
    default:
      return c.total();
  }
}

int64_t OutputCount(const Case& c, int member) {
  switch (c.operation) {
    case Operation::kReduceScatter:
    case Operation::kScatter:
      return c.counts[member];
    case Operation::kReduce:
    case Operation::kGather:
      return member == c.root ? c.total() : 0;
    default:
      return c.total();
  }
}

Bytes InputOf(const Case& c, int member) { return InputSlice(c, member, 0, InputCount(c, member)); }

Bytes InputSlice(const Case& c, int member, int64_t begin, int64_t count) {
  const bool near_one = c.reduce_op == ReduceOp::kProduct;
  Bytes bytes(static_cast<size_t>(count * SizeOf(c.dtype)));
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = RandomBits(c.seed * 64 + static_cast<uint64_t>(member) + 1,
                                     static_cast<uint64_t>(begin + i));
    const double number = RandomNumber(bits, near_one);
    switch (c.dtype) {
      case DType::kF32:
        Store(static_cast<float>(number), bytes, i);
        break;
      case DType::kF64:
        Store(number, bytes, i);
        break;
      case DType::kF16:
        Store(FloatToHalf(static_cast<float>(number)), bytes, i);
        break;
      case DType::kBF16:
        Store(FloatToBFloat16(static_cast<float>(number)), bytes, i);
        break;
      case DType::kI32:
        Store(static_cast<int32_t>(bits), bytes, i);
        break;
      case DType::kI64:
        Store(static_cast<int64_t>(bits), bytes, i);
        break;
      case DType::kU8:
        Store(static_cast<uint8_t>(bits), bytes, i);
        break;
    }
  }
  return bytes;
}

Bytes OutputOf(const Case& c, int member) {
  if (OutputCount(c, member) == 0) return {};
  Bytes result;
  switch (c.operation) {
    case Operation::kAllReduce:
    case Operation::kReduce:
      return Reduced(c, 0, c.total());
    case Operation::kReduceScatter:
      return Reduced(c, c.begin_of(member), c.counts[member]);
    case Operation::kAllGather:
    case Operation::kGather:
      for (int other = 0; other < c.size(); ++other) {
        const Bytes chunk = InputOf(c, other);
        result.insert(result.end(), chunk.begin(), chunk.end());
      }
      return result;
    case Operation::kBroadcast:
      return InputOf(c, c.root);
    case Operation::kScatter:
      return InputSlice(c, c.root, c.begin_of(member), c.counts[member]);
    case Operation::kAllToAll:
      for (int other = 0; other < c.size(); ++other) {
        const Bytes chunk = InputSlice(c, other, c.begin_of(member), c.counts[member]);
        result.insert(result.end(), chunk.begin(), chunk.end());
      }
      return result;
    default:
      break;
  }
  LOG(FATAL) << Name(c.operation) << " has no output";
}

bool Agrees(const Case& c, int member, const Bytes& actual, Arithmetic arithmetic) {
  const Bytes expected = OutputOf(c, member);
  const bool is_float = c.dtype != DType::kI32 && c.dtype != DType::kI64 && c.dtype != DType::kU8;
  const bool rounds = c.reduce_op != ReduceOp::kMin && c.reduce_op != ReduceOp::kMax;
  if (arithmetic == Arithmetic::kTree || !Reduces(c.operation) || !is_float || !rounds) {
    return actual == expected;
  }
  if (actual.size() != expected.size()) return false;
  const double roundings = c.size() * UnitRoundoff(c.dtype);
  for (int64_t i = 0; i < static_cast<int64_t>(expected.size()) / SizeOf(c.dtype); ++i) {
    const double want = NumberAt(expected, c.dtype, i), got = NumberAt(actual, c.dtype, i);
    // No element of a sum exceeds the largest numbers of all members together.
    const double largest = c.reduce_op == ReduceOp::kProduct ? std::abs(want) : c.size() * 0x1p9;
    if (!(std::abs(got - want) <= roundings * largest)) return false;
  }
  return true;
}

}  // namespace lockstep
