#include "core/config/cut_settings.h"

#include <bit>  // std::has_single_bit
#include <string>

#include "absl/strings/str_cat.h"
#include "core/config/config_reader.h"

namespace lockstep {
namespace {

// Whether each of `tp` ranks holds a node of the tree over the leaves. One rank holds all of it.
bool HoldNodes(int64_t leaves, int64_t tp) {
  return tp == 1 || (leaves % tp == 0 && std::has_single_bit(static_cast<uint64_t>(leaves / tp)));
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

}  // namespace lockstep
