#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "core/comm/mesh_shape.h"
#include "core/config/config.h"

namespace lockstep {

// How the sums of a step are cut, whoever makes them: the gradient is a tree over the shards of the
// global batch, and a shard's gradient is a chain over its micro-batches, in order.
struct CutSettings {
  int64_t shards = 1;         // of equal size; see ShardAssignment for who trains which
  int64_t micro_batches = 1;  // of one shard, none of them empty
  // Whether the configuration leaves the number of shards to the mesh: then runs on other meshes
  // have other sums.
  bool shards_are_of_mesh = false;
};

// Reads the table cut: shards, by default as many as the mesh has data-parallel ranks, and
// micro_batches.
absl::Status ReadCut(const Config& config, const MeshShape& mesh, CutSettings& cut);

}  // namespace lockstep
