#include "core/checkpoint/finite.h"

#include <cstdint>
#include <cstring>  // std::memcpy

#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

// Whether all floating-point numbers are finite whose exponents are the bits of `exponent`.
template <typename Bits>
bool NoneHasAllOf(Bits exponent, std::span<const std::byte> bytes) {
  for (size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + at, sizeof(Bits));
    if ((bits & exponent) == exponent) return false;
  }
  return true;
}

}  // namespace

bool AreFinite(DType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case DType::kF64:
      return NoneHasAllOf(uint64_t{0x7ff} << 52, bytes);
    case DType::kF32:
      return NoneHasAllOf(uint32_t{0xff} << 23, bytes);
    case DType::kBF16:
      return NoneHasAllOf(uint16_t{0x7f80}, bytes);
    case DType::kF16:
      return NoneHasAllOf(uint16_t{0x7c00}, bytes);
    default:
      return true;
  }
}

absl::Status CheckFinite(const std::string& name, DType dtype, std::span<const std::byte> bytes,
                         const std::string& remedy) {
  if (AreFinite(dtype, bytes)) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("'", name, "' has elements that are infinite or NaN, so ", remedy));
}

}  // namespace lockstep
