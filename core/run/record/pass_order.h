#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/nn/probe.h"

namespace lockstep {

// When a tensor of a step comes into being, comparable between ranks: direction, micro-batch, block
// in the order of the direction, and how many tensors the rank had seen. What comes first is less.
using PassOrder = std::array<int64_t, 4>;

inline constexpr PassOrder kBehindAll = {2, 0, 0, 0};

// `blocks`: the names of the model's, in their order. What is no part of a block comes before all
// of them (inputs), or behind. `micro_batch`: its number in whatever order the caller compares.
PassOrder OrderOf(const ProbedTensor& tensor, const std::vector<std::string>& blocks,
                  int64_t micro_batch, int64_t seen);

// "the output of blocks.0 in micro-batch 3".
std::string InWords(const ProbedTensor& tensor);

}  // namespace lockstep
