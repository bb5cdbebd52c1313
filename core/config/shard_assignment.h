#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/comm/mesh_shape.h"
#include "core/config/cut_settings.h"

namespace lockstep {

// Which shards of the batch a data-parallel rank trains. Replicas have equal runs of the shards;
// inside a replica,
//   consecutive  each rank along dp has a run of its own: it sums its gradients over these shards,
//                which are a node of the tree over shards, before ranks sum theirs;
//   strided      rank r of n has the shards r, r + n, ...: ranks sum each round of n shards, a node
//                of the tree, and each adds its part of these sums up.
enum class ShardAssignment { kConsecutive, kStrided };

// The shards of a rank, in the order in which it trains them. Requires CheckShards.
std::vector<int64_t> ShardsOfRank(const MeshShape& mesh, const MeshCoordinate& rank,
                                  const CutSettings& cut, ShardAssignment assignment);

// Whether the mesh divides the tree over shards: every rank has as many shards, and whatever is
// summed before something else is a power of two, so that each partial sum is a node of the tree.
// InvalidArgument with the meshes that fit.
absl::Status CheckShards(const MeshShape& mesh, const CutSettings& cut, ShardAssignment assignment);

}  // namespace lockstep
