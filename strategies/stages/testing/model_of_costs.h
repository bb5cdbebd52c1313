// Blocks that do nothing, for what looks at their costs alone.

#pragma once

#include <cstdint>
#include <vector>

#include "core/nn/model.h"

namespace lockstep {

// A model of a block for each element of `macs`, which is its multiply-adds forward.
Model ModelOfCosts(const std::vector<int64_t>& macs);

}  // namespace lockstep
