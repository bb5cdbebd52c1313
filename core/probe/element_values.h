// Elements of tensors of any type as numbers, and how far apart they are.

#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"

namespace lockstep {

// The bits of element `index` of elements of a type that lie from `bytes` on, as an unsigned
// number.
uint64_t BitsAt(DType dtype, const uint8_t* bytes, int64_t index);

// The number that these bits are.
double ValueOf(DType dtype, uint64_t bits);

// Units in the last place between two numbers of a floating type: how many numbers of the type lie
// between them, plus one; -0 and 0 are the same number. For other types the difference of the
// numbers. -1 where one of them is NaN.
int64_t UlpDistance(DType dtype, uint64_t one, uint64_t other);

// The distance from 1 to the next larger number of a floating type; 0 for other types.
double EpsilonOf(DType dtype);

}  // namespace lockstep
