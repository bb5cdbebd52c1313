#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "core/comm/operation.h"
#include "core/tensor/dtype.h"

namespace lockstep {

// Combines elements [begin, end) of all inputs, element by element, in the order of the inputs:
// ((x0 op x1) op x2) op ..., and stores the result at the same place of each output. The 16-bit
// types are converted to float, combined in float and rounded once at the end; integers wrap
// around.
//
// The result depends on nothing but the elements: not on where slices begin nor on alignment. All
// pointers are to element 0 and aligned for the dtype. An output may be the very memory of an
// input; otherwise they do not overlap. Each input is read once and each output written once, by
// blocks that stay in the first-level cache.
//
// Host memory only, any dtype but u8.
void ReduceInOrder(DType dtype, ReduceOp op, absl::Span<const std::byte* const> inputs,
                   absl::Span<std::byte* const> outputs, int64_t begin, int64_t end);

}  // namespace lockstep
