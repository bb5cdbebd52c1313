#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "core/comm/mesh_shape.h"
#include "core/config/config.h"

namespace lockstep {

// How the sums of a step are cut, whoever makes them (docs/numerics.md): the gradient is a tree
// over the shards of the global batch and, in each, over token leaves; of a token leaf it is a
// chain over the shard's micro-batches, in order. Sums over the features that tensor parallelism
// splits are trees over feature leaves.
struct CutSettings {
  int64_t shards = 1;         // of equal size; see ShardAssignment for who trains which
  int64_t micro_batches = 1;  // of one shard, none of them empty
  int64_t tokens = 1;         // leaves of each sequence (core/base/token_order.h)
  int64_t features = 1;       // leaves of sums over features; a rank along tp holds some of them
  // Whether the configuration leaves the number to the mesh: then runs on other meshes have other
  // sums.
  bool shards_are_of_mesh = false;
  bool tokens_are_of_mesh = false;
  bool features_are_of_mesh = false;
};

// Reads the table cut: shards, by default as many as the mesh has data-parallel ranks;
// micro_batches; tokens, by default mesh.tp where tensor_parallel.sequence_parallel divides them,
// else 1; and features, by default mesh.tp. InvalidArgument where the leaves of a rank along tp
// would be no node of their tree, with the meshes that fit.
absl::Status ReadCut(const Config& config, const MeshShape& mesh, CutSettings& cut);

}  // namespace lockstep
