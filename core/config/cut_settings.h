#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/comm/mesh_shape.h"
#include "core/config/config.h"

namespace lockstep {

// How the sums of a step are cut, whoever makes them (docs/numerics.md): the gradient is a tree
// over the shards of the global batch and, in each, over token leaves; of a token leaf it is a
// chain over the shard's micro-batches, in order. Sums over the features that tensor parallelism
// splits are trees over feature leaves.
struct CutSettings {
  int64_t shards = 1;         // of equal size; ShardAssignment says who trains which
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
// micro_batches; tokens, by default as many as the ranks that divide them, those along cp and, with
// tensor_parallel.sequence_parallel, along tp; and features, by default mesh.tp. InvalidArgument
// where the leaves of a rank would be no node of their tree, with the meshes that fit.
absl::Status ReadCut(const Config& config, const MeshShape& mesh, CutSettings& cut);

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
