#include "core/config/cut_settings.h"

#include <bit>  // std::has_single_bit
#include <string>

#include "absl/strings/str_cat.h"
#include "core/config/config_reader.h"

namespace lockstep {
namespace {

// Whether each of `tp` ranks holds a node of the tree over the leaves. One rank holds all of it.
bool HoldNodes(int64_t features, int64_t tp) {
  return tp == 1 ||
         (features % tp == 0 && std::has_single_bit(static_cast<uint64_t>(features / tp)));
}

// "1, 2 or 4"
std::string TensorParallelRanksThatFit(int64_t features) {
  std::string ranks = "1";
  for (int64_t tp = 2; tp <= features; ++tp) {
    if (!HoldNodes(features, tp)) continue;
    absl::StrAppend(&ranks, tp == features ? " or " : ", ", tp);
  }
  return ranks;
}

}  // namespace

absl::Status ReadCut(const Config& config, const MeshShape& mesh, CutSettings& cut) {
  constexpr NumberBounds kPositive = {.at_least = 1};
  constexpr int64_t kMostFeatures = 256;  // as many as ranks (settings.cc)
  ConfigReader reader(config.Table("cut"));
  cut.shards_are_of_mesh = !reader.Has("shards") && mesh.data_ranks() > 1;
  cut.shards = mesh.data_ranks();
  reader.Read("shards", &cut.shards, kPositive);
  reader.Read("micro_batches", &cut.micro_batches, kPositive);
  cut.features_are_of_mesh = !reader.Has("features") && mesh.tp > 1;
  cut.features = mesh.tp;
  reader.Read("features", &cut.features, {.at_least = 1, .at_most = kMostFeatures});
  if (cut.features >= 1 && !HoldNodes(cut.features, mesh.tp)) {
    reader.AddProblem(
        "features",
        absl::StrCat("is ", cut.features, ", but mesh.tp is ", mesh.tp,
                     ": each rank along tp must hold a power of two of the feature leaves, so that "
                     "it sums a node of the tree over features; set mesh.tp=",
                     TensorParallelRanksThatFit(cut.features), ", or cut.features=", mesh.tp));
  }
  return reader.Finish();
}

}  // namespace lockstep
