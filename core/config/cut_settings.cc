#include "core/config/cut_settings.h"

#include <bit>  // std::has_single_bit
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/config/config_reader.h"
#include "core/config/key_ranges.h"

namespace lockstep {
namespace {

bool IsPowerOfTwo(int64_t count) { return std::has_single_bit(static_cast<uint64_t>(count)); }

// Ranks that divide leaves: those along cp have runs of leaves, and those along tp divide each run.
struct Dividers {
  int64_t cp = 1, tp = 1;

  int64_t ranks() const { return cp * tp; }
  // Whether each rank holds a node of the tree over the leaves, and those that divide a run
  // together do too. One rank holds all of it.
  bool HoldNodes(int64_t leaves) const {
    if (ranks() == 1) return true;
    return leaves % ranks() == 0 && IsPowerOfTwo(leaves / ranks()) &&
           (cp == 1 || IsPowerOfTwo(leaves / cp));
  }
  // "mesh.tp", with what the axes have: `of` an axis
  template <typename Of>
  std::string Names(Of&& of) const {
    if (cp == 1) return of("tp");
    return tp == 1 ? of("cp") : absl::StrCat(of("cp"), " x ", of("tp"));
  }
};

// "1, 2 or 4"
std::string RanksThatFit(int64_t leaves) {
  std::string ranks = "1";
  for (int64_t count = 2; count <= leaves; ++count) {
    if (!Dividers{.tp = count}.HoldNodes(leaves)) continue;
    absl::StrAppend(&ranks, count == leaves ? " or " : ", ", count);
  }
  return ranks;
}

// Reads a key that says how many leaves the ranks divide. `what` the leaves are of.
void ReadLeaves(ConfigReader& reader, const std::string& key, const char* what,
                const Dividers& dividers, int64_t& leaves, bool& are_of_mesh) {
  constexpr int64_t kMost = 256;
  are_of_mesh = !reader.Has(key) && dividers.ranks() > 1;
  leaves = dividers.ranks();
  reader.Read(key, &leaves, {.at_least = 1, .at_most = kMost});
  if (leaves < 1 || dividers.HoldNodes(leaves)) return;
  const std::string axes =
      dividers.Names([](const std::string& axis) { return absl::StrCat("mesh.", axis); });
  const std::string sizes = dividers.Names([&dividers](const std::string& axis) {
    return absl::StrCat(axis == "cp" ? dividers.cp : dividers.tp);
  });
  const std::string along = dividers.Names([](const std::string& axis) { return axis; });
  reader.AddProblem(
      key, absl::StrCat("is ", leaves, ", but ", axes, " is ", sizes, ": each rank along ", along,
                        " must hold a power of two of the ", what,
                        " leaves, so that it sums a node of the tree over ", what, "s; set ", axes,
                        "=", RanksThatFit(leaves), ", or cut.", key, "=", dividers.ranks()));
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
  constexpr NumberBounds kCount = {.at_least = 1, .at_most = kMostSamplesOfStep};
  ConfigReader reader(config.Table("cut"));
  cut.shards_are_of_mesh = !reader.Has("shards") && mesh.data_ranks() > 1;
  cut.shards = mesh.data_ranks();
  reader.Read("shards", &cut.shards, kCount);
  reader.Read("micro_batches", &cut.micro_batches, kCount);
  ReadLeaves(reader, "tokens", "token", {.cp = mesh.cp, .tp = DividesTokens(config) ? mesh.tp : 1},
             cut.tokens, cut.tokens_are_of_mesh);
  ReadLeaves(reader, "features", "feature", {.tp = mesh.tp}, cut.features,
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
