#include "core/probe/element_values.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/half.h"

namespace lockstep {
namespace {

template <typename Bits>
uint64_t Load(const uint8_t* bytes, int64_t index) {
  Bits bits;
  std::memcpy(&bits, bytes + index * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
  return bits;
}

// A number whose order is that of the floating numbers, and whose steps are theirs.
int64_t Ordered(DType dtype, uint64_t bits) {
  const int width = static_cast<int>(8 * SizeOf(dtype));
  const uint64_t sign = uint64_t{1} << (width - 1);
  const auto magnitude = static_cast<int64_t>(bits & (sign - 1));
  return (bits & sign) != 0 ? -magnitude : magnitude;
}

}  // namespace

uint64_t BitsAt(DType dtype, const uint8_t* bytes, int64_t index) {
  switch (SizeOf(dtype)) {
    case 8:
      return Load<uint64_t>(bytes, index);
    case 4:
      return Load<uint32_t>(bytes, index);
    case 2:
      return Load<uint16_t>(bytes, index);
    default:
      return Load<uint8_t>(bytes, index);
  }
}

double ValueOf(DType dtype, uint64_t bits) {
  switch (dtype) {
    case DType::kF64:
      return std::bit_cast<double>(bits);
    case DType::kF32:
      return std::bit_cast<float>(static_cast<uint32_t>(bits));
    case DType::kF16:
      return HalfToFloat(static_cast<uint16_t>(bits));
    case DType::kBF16:
      return BFloat16ToFloat(static_cast<uint16_t>(bits));
    case DType::kI64:
      return static_cast<double>(static_cast<int64_t>(bits));
    case DType::kI32:
      return static_cast<int32_t>(static_cast<uint32_t>(bits));
    case DType::kU8:
      return static_cast<double>(bits);
  }
  return 0;
}

int64_t UlpDistance(DType dtype, uint64_t one, uint64_t other) {
  if (std::isnan(ValueOf(dtype, one)) || std::isnan(ValueOf(dtype, other))) return -1;
  if (!IsFloating(dtype)) {
    return static_cast<int64_t>(std::abs(ValueOf(dtype, one) - ValueOf(dtype, other)));
  }
  const int64_t a = Ordered(dtype, one), b = Ordered(dtype, other);
  // Two doubles of opposite signs may lie further apart than int64 goes.
  const uint64_t distance = a > b ? static_cast<uint64_t>(a) - static_cast<uint64_t>(b)
                                  : static_cast<uint64_t>(b) - static_cast<uint64_t>(a);
  constexpr auto kMost = std::numeric_limits<int64_t>::max();
  return distance > static_cast<uint64_t>(kMost) ? kMost : static_cast<int64_t>(distance);
}

double EpsilonOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x1p-52;
    case DType::kF32:
      return 0x1p-23;
    case DType::kF16:
      return 0x1p-10;
    case DType::kBF16:
      return 0x1p-7;
    default:
      return 0;
  }
}

}  // namespace lockstep
