#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "core/comm/mesh_shape.h"
#include "core/config/config.h"

namespace lockstep {

// How the sums of a step are cut, whoever makes them: the gradient is a tree over the shards of the
// global batch, and a shard's gradient is a chain over its micro-batches, in order.
struct CutSettings {
  int64_t shards = 1;         // of equal size; a rank along replicas x dp holds one of them
  int64_t micro_batches = 1;  // of one shard, none of them empty
  // Whether the configuration leaves the number of shards to the mesh: then runs on other meshes
  // have other sums.
  bool shards_are_of_mesh = false;
};

// Reads the table cut: shards, by default as many as the mesh has data-parallel ranks, and
// micro_batches.
absl::Status ReadCut(const Config& config, const MeshShape& mesh, CutSettings& cut);

// Whether each data-parallel rank can hold one shard: mesh.replicas x mesh.dp must be cut.shards,
// and with several replicas mesh.dp a power of two, so that the ranks of a replica sum an aligned
// range of shards. InvalidArgument with the meshes that fit.
absl::Status CheckOneShardARank(const MeshShape& mesh, const CutSettings& cut);

}  // namespace lockstep
