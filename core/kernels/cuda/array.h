#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"

namespace lockstep::cuda {

// The elements of a tensor in the GPU's memory, as kernels take them; null: there is no tensor.
struct Array {
  void* data = nullptr;
  DType dtype = DType::kF32;
};

}  // namespace lockstep::cuda
