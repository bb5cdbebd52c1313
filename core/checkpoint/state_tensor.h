#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint/tensor_slice.h"
#include "core/tensor/tensor.h"

namespace lockstep {

// A tensor that a checkpoint keeps: a parameter, a buffer, a piece of optimizer state; or this
// rank's part of one.
struct StateTensor {
  std::string name;
  Tensor tensor;
  Shape full_shape;                 // of the whole
  int64_t first = 0;                // this part's first element in the whole, or in the slice
  bool is_writer = true;            // whether this rank saves it: of replicas, one does
  std::optional<Slice> slice = {};  // given: this part is one of a slice of the whole
  // Whether it stays what it is: a part of the base that adapters are trained on, which their
  // checkpoints do without.
  bool is_frozen = false;

  TensorSlice held() const;
};

// Names of optimizer state begin so; all others are weights: parameters and running statistics.
inline constexpr char kOptimizerPrefix[] = "optimizer.";
bool IsOptimizerState(const std::string& name);

// Element type and shape as safetensors files have them: "F32", "BF16", ...; [2, 3].
std::string SafetensorsDType(DType dtype);
// The reverse of SafetensorsDType; none for types that no tensor here has.
std::optional<DType> DTypeOfSafetensors(const std::string& dtype);
std::vector<int64_t> Dims(const Shape& shape);

}  // namespace lockstep
