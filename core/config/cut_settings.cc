#include "core/config/cut_settings.h"

#include <bit>  // std::has_single_bit
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/config/config_reader.h"

namespace lockstep {
namespace {

bool IsPowerOfTwo(int64_t count) { return std::has_single_bit(static_cast<uint64_t>(count)); }

// Whether each of `tp` ranks holds a node of the tree over the leaves. One rank holds all of it.
bool HoldNodes(int64_t leaves, int64_t tp) {
  return tp == 1 || (leaves % tp == 0 && IsPowerOfTwo(leaves / tp));
}

// "1, 2 or 4"
std::string TensorParallelRanksThatFit(int64_t leaves) {
  std::string ranks = "1";
  for (int64_t tp = 2; tp <= leaves; ++tp) {
    if (!HoldNodes(leaves, tp)) continue;
    absl::StrAppend(&ranks, tp == leaves ? " or " : ", ", tp);
  }
  return ranks;
}

// Reads a key that says how many leaves ranks along tp divide, where `is_divided`. `what` the
// leaves are of.
void ReadLeaves(ConfigReader& reader, const std::string& key, const char* what, bool is_divided,
                int64_t tp, int64_t& leaves, bool& are_of_mesh) {
  constexpr int64_t kMost = 256;  // as many as ranks (settings.cc)
  const int64_t divisors = is_divided ? tp : 1;
  are_of_mesh = !reader.Has(key) && divisors > 1;
  leaves = divisors;
  reader.Read(key, &leaves, {.at_least = 1, .at_most = kMost});
  if (leaves < 1 || HoldNodes(leaves, divisors)) return;
  reader.AddProblem(key, absl::StrCat("is ", leaves, ", but mesh.tp is ", tp,
                                      ": each rank along tp must hold a power of two of the ", what,
                                      " leaves, so that it sums a node of the tree over ", what,
                                      "s; set mesh.tp=", TensorParallelRanksThatFit(leaves),
                                      ", or cut.", key, "=", tp));
}

// Whether ranks along tp divide the tokens too. What else the table says, and whether it is right,
// is tensor parallelism's to read.
bool DividesTokens(const Config& config) {
  bool divides = false;
  ConfigReader(config.Table("tensor_parallel")).Read("sequence_parallel", &divides);
  return divides;
}

// Why so many replicas of so many ranks cannot hold the shards; empty: they can.
std::string Misfit(int64_t replicas, int64_t dp, int64_t shards, ShardAssignment assignment) {
  if (shards % (replicas * dp) != 0) return "these ranks do not divide the shards evenly";
  const int64_t of_rank = shards / (replicas * dp);
  if (replicas > 1 && !IsPowerOfTwo(dp * of_rank)) {
    return absl::StrCat("a replica would sum ", dp * of_rank,
                        " shards, and only a power of two is a node of the tree over shards");
  }
  const bool strided = assignment == ShardAssignment::kStrided;
  const int64_t inner = strided ? dp : of_rank, outer = strided ? of_rank : dp;
  if (outer == 1 || IsPowerOfTwo(inner)) return "";
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

absl::Status ReadCut(const Config& config, const MeshShape& mesh, CutSettings& cut) {
  constexpr NumberBounds kPositive = {.at_least = 1};
  ConfigReader reader(config.Table("cut"));
  cut.shards_are_of_mesh = !reader.Has("shards") && mesh.data_ranks() > 1;
  cut.shards = mesh.data_ranks();
  reader.Read("shards", &cut.shards, kPositive);
  reader.Read("micro_batches", &cut.micro_batches, kPositive);
  ReadLeaves(reader, "tokens", "token", DividesTokens(config), mesh.tp, cut.tokens,
             cut.tokens_are_of_mesh);
  ReadLeaves(reader, "features", "feature", /*is_divided=*/true, mesh.tp, cut.features,
             cut.features_are_of_mesh);
  return reader.Finish();
}

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
  return InvalidArgument("cut.shards is ", cut.shards, ", but ", ranks, ": ", misfit,
                         "; set one of ", MeshesThatFit(cut.shards, assignment));
}

}  // namespace lockstep
