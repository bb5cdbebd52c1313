#include "core/config/shard_assignment.h"

#include <bit>  // std::has_single_bit
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep {
namespace {

// Why so many replicas of so many ranks cannot hold the shards; empty: they can.
std::string Misfit(int64_t replicas, int64_t dp, int64_t shards, ShardAssignment assignment) {
  if (shards % (replicas * dp) != 0) return "these ranks do not divide the shards evenly";
  const auto is_power = [](int64_t count) {
    return std::has_single_bit(static_cast<uint64_t>(count));
  };
  const int64_t of_rank = shards / (replicas * dp);
  if (replicas > 1 && !is_power(dp * of_rank)) {
    return absl::StrCat("a replica would sum ", dp * of_rank,
                        " shards, and only a power of two is a node of the tree over shards");
  }
  const bool strided = assignment == ShardAssignment::kStrided;
  const int64_t inner = strided ? dp : of_rank, outer = strided ? of_rank : dp;
  if (outer == 1 || is_power(inner)) return "";
  return absl::StrCat(strided ? "a round would sum " : "a rank would sum ", inner,
                      " shards, and only a power of two is a node of the tree over shards");
}

// "mesh.dp = 1, 2, 4 or 8; mesh.replicas = 2 with mesh.dp = 1, 2 or 4; ..."
std::string MeshesThatFit(int64_t shards, ShardAssignment assignment) {
  std::string meshes;
  for (int64_t replicas = 1; replicas <= shards; ++replicas) {
    std::vector<int64_t> fitting;
    for (int64_t dp = 1; dp * replicas <= shards; ++dp) {
      if (Misfit(replicas, dp, shards, assignment).empty()) fitting.push_back(dp);
    }
    if (fitting.empty()) continue;
    if (replicas > 1) absl::StrAppend(&meshes, "; mesh.replicas=", replicas, " with ");
    absl::StrAppend(&meshes, "mesh.dp=", absl::StrJoin(fitting, ", "));
  }
  return meshes;
}

}  // namespace

std::vector<int64_t> ShardsOfRank(const MeshShape& mesh, const MeshCoordinate& rank,
                                  const CutSettings& cut, ShardAssignment assignment) {
  const int64_t of_rank = cut.shards / mesh.data_ranks(), of_replica = of_rank * mesh.dp;
  const bool strided = assignment == ShardAssignment::kStrided;
  const int64_t first = rank.replicas * of_replica + rank.dp * (strided ? 1 : of_rank);
  std::vector<int64_t> shards;
  for (int64_t i = 0; i < of_rank; ++i) shards.push_back(first + i * (strided ? mesh.dp : 1));
  return shards;
}

absl::Status CheckShards(const MeshShape& mesh, const CutSettings& cut,
                         ShardAssignment assignment) {
  const std::string misfit = Misfit(mesh.replicas, mesh.dp, cut.shards, assignment);
  if (misfit.empty()) return absl::OkStatus();
  const std::string ranks =
      mesh.replicas > 1 ? absl::StrCat("mesh.replicas x mesh.dp is ", mesh.replicas, " x ", mesh.dp)
                        : absl::StrCat("mesh.dp is ", mesh.dp);
  return absl::InvalidArgumentError(absl::StrCat("cut.shards is ", cut.shards, ", but ", ranks,
                                                 ": ", misfit, "; set one of ",
                                                 MeshesThatFit(cut.shards, assignment)));
}

}  // namespace lockstep
