// What tests of operations, layers and models share: double arrays that a device holds to the bit,
// and comparisons of what it made of them.

#pragma once

#include <cstdint>
#include <vector>

#include "core/kernels/kernels.h"
#include "core/kernels/reference.h"
#include "gtest/gtest.h"

namespace lockstep {

// Normally distributed elements, rounded to fp32. Another stream gives other numbers.
reference::Array RandomArray(const Shape& shape, uint64_t stream, float stddev = 1);

// Integers in [0, below).
std::vector<int32_t> RandomIntegers(int64_t count, int32_t below, uint64_t stream);

Tensor Upload(Kernels& kernels, const reference::Array& x);
Tensor Upload(Kernels& kernels, const Shape& shape, const std::vector<int32_t>& x);
reference::Array Download(Kernels& kernels, const Tensor& x);

// Whether no element of `actual` is further from `expected` than `tolerance` times the largest
// magnitude of `expected`.
testing::AssertionResult IsNear(const reference::Array& expected, const reference::Array& actual,
                                double tolerance);

// Whether two arrays hold the same bits; undefined ones are equal to each other alone.
testing::AssertionResult SameBits(const reference::Array& a, const reference::Array& b);

}  // namespace lockstep
