#pragma once

#include <cstdint>

namespace lockstep {

// The element types of tensors. F64 serves references and statistics, not training.
enum class DType : uint8_t { kF32, kF16, kBF16, kF64, kI32, kI64, kU8 };

// Bytes of one element.
constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kU8:
      return 1;
  }
  return 0;
}

// "f32", "bf16", ...: the names used in configurations, ledgers and messages.
constexpr const char* Name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kF64:
      return "f64";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kU8:
      return "u8";
  }
  return "?";
}

constexpr bool IsFloating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         dtype == DType::kF64;
}

// Maps a C++ type to its DType; only the types that the host computes with.
template <typename T>
struct DTypeOfT;
template <>
struct DTypeOfT<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOfT<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOfT<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOfT<int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOfT<uint8_t> {
  static constexpr DType value = DType::kU8;
};
template <typename T>
inline constexpr DType kDTypeOf = DTypeOfT<T>::value;

}  // namespace lockstep
