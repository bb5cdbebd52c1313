#include "core/checkpoint/state_tensor.h"

namespace lockstep {

TensorSlice StateTensor::held() const {
  return {.whole = Dims(full_shape), .first = first, .elements = tensor.elements(), .slice = slice};
}

bool IsOptimizerState(const std::string& name) { return name.starts_with(kOptimizerPrefix); }

std::string SafetensorsDType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kF64:
      return "F64";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kU8:
      return "U8";
  }
  return "?";
}

std::optional<DType> DTypeOfSafetensors(const std::string& dtype) {
  for (const DType each : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kI32,
                           DType::kI64, DType::kU8}) {
    if (SafetensorsDType(each) == dtype) return each;
  }
  return std::nullopt;
}

std::vector<int64_t> Dims(const Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

}  // namespace lockstep
