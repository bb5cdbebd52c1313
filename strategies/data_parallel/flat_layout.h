#pragma once

#include <cstdint>
#include <vector>

#include "core/nn/parameter.h"
#include "core/tensor/dtype.h"

namespace lockstep {

// Where parameters lie in a flat tensor, one behind the other on 64-byte boundaries, and how it is
// cut: into as many shards of one size as there are ranks, which fall on these boundaries too. What
// is left over at the end fills the last shards up.
struct FlatLayout {
  std::vector<int64_t> offsets;  // of each parameter, in elements
  int64_t shard = 0;             // elements of one shard
  int64_t whole = 0;             // of all shards
};

// The boundaries hold for elements of `narrowest`, the smallest dtype that is laid out so.
FlatLayout LayOut(const std::vector<Parameter*>& parameters, int ranks, DType narrowest);

}  // namespace lockstep
