#include "core/config/moved_keys.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep {
namespace {

struct Move {
  std::vector<std::string> tables;  // that had the key
  std::string key;
  std::string now;  // what is to be done
};

std::vector<Move> Moves() {
  const std::vector<std::string> replicating = {"ddp", "layerwise", "gpipe"};
  const std::vector<std::string> sharding = {"fsdp", "fsdp_pipe"};
  const std::vector<std::string> staged = {"layerwise", "gpipe", "fsdp_pipe"};
  return {
      {{"batch"}, "shards", "is called cut.shards now"},
      {{"batch"}, "micro_batches", "is called cut.micro_batches now"},
      {{"batch"},
       "shard_groups",
       "is gone: replicas sum shards along the same tree as all meshes, so leave it out"},
      {replicating, "first_bucket_bytes", "is called data_parallel.first_bucket_bytes now"},
      {replicating, "bucket_bytes", "is called data_parallel.bucket_bytes now"},
      {sharding, "reshard_after_forward", "is called data_parallel.reshard now"},
      {sharding, "accumulate", "is called data_parallel.accumulate now"},
      {sharding, "unshard", "is called data_parallel.unshard now"},
      {staged, "schedule", "is called pipeline.schedule now"},
      {staged, "schedule_file", "is called pipeline.schedule_file now"},
      {staged, "stages_per_rank", "is called pipeline.stages_per_rank now"},
      {staged, "balance", "is called pipeline.balance now"},
      {{"gpipe", "fsdp_pipe"}, "checkpoint", "is called recompute.micro_batches now"},
      {{"tp"}, "sequence_parallel", "is called tensor_parallel.sequence_parallel now"},
  };
}

}  // namespace

absl::Status CheckMovedKeys(const Config& config) {
  std::vector<std::string> problems;
  for (const Move& move : Moves()) {
    for (const std::string& name : move.tables) {
      const ConfigValue* old = config.Table(absl::StrCat(name, ".", move.key)).value;
      if (old == nullptr) continue;
      problems.push_back(absl::StrCat(old->origin, ": ", name, ".", move.key, " ", move.now));
    }
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
}

}  // namespace lockstep
