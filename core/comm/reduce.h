#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "core/comm/host_copy.h"
#include "core/comm/operation.h"
#include "core/tensor/dtype.h"

namespace lockstep {

// Combines elements [begin, end) of all inputs, element by element, along the tree of
// core/base/sum_tree.h whose leaves are the inputs: (x0 op x1) op (x2 op x3) of four. Stores the
// result at the same place of each output. The 16-bit types are combined in float, and each node of
// the tree is rounded to the dtype; an average is the rounded sum, divided and rounded again.
// Integers wrap around.
//
// The result depends on nothing but the elements: not on where slices begin nor on alignment. All
// pointers are to element 0 and aligned for the dtype. An output may be the very memory of an
// input; otherwise they do not overlap. Each input is read once and each output written once, by
// blocks or bursts whose unfinished nodes, log2(inputs) at a time, stay in the first-level cache.
// The 16-bit types go by blocks whatever `moves` says.
//
// Host memory only, any dtype but u8.
void ReduceByTree(DType dtype, ReduceOp op, absl::Span<const std::byte* const> inputs,
                  absl::Span<std::byte* const> outputs, int64_t begin, int64_t end,
                  Moves moves = PreferredMoves());

}  // namespace lockstep
