#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "core/tensor/tensor.h"

namespace lockstep {

// Whether no element is infinite or NaN. bytes: elements of `dtype`; whole numbers are finite.
bool AreFinite(DType dtype, std::span<const std::byte> bytes);

// What files of weights must not hold. OutOfRange, with the tensor's name and `remedy`, where an
// element of the tensor is infinite or NaN.
absl::Status CheckFinite(const std::string& name, DType dtype, std::span<const std::byte> bytes,
                         const std::string& remedy);

}  // namespace lockstep
