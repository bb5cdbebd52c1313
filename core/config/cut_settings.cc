#include "core/config/cut_settings.h"

#include "core/config/config_reader.h"

namespace lockstep {

absl::Status ReadCut(const Config& config, const MeshShape& mesh, CutSettings& cut) {
  constexpr NumberBounds kPositive = {.at_least = 1};
  ConfigReader reader(config.Table("cut"));
  cut.shards_are_of_mesh = !reader.Has("shards") && mesh.data_ranks() > 1;
  cut.shards = mesh.data_ranks();
  reader.Read("shards", &cut.shards, kPositive);
  reader.Read("micro_batches", &cut.micro_batches, kPositive);
  return reader.Finish();
}

}  // namespace lockstep
