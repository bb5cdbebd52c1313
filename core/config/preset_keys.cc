#include "core/config/preset_keys.h"

#include <algorithm>
#include <bit>  // std::has_single_bit
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/config/config_reader.h"
#include "core/config/config_toml.h"

namespace lockstep {
namespace {

// The value at a dotted path; null where there is none.
const ConfigValue* Find(const Config& config, const std::string& path) {
  return config.Table(path).value;
}

// A positive whole number at "table.key", else 0. What else may be there, its reader refuses.
int64_t Count(const Config& config, const std::string& path) {
  const ConfigValue* value = Find(config, path);
  const int64_t* count = value == nullptr ? nullptr : value->As<int64_t>();
  return count == nullptr ? 0 : std::max<int64_t>(0, *count);
}

absl::Status Lay(const std::string& toml, const std::string& origin, Config& config) {
  LS_ASSIGN_OR_RETURN(Config layer, Config::FromString(toml, origin));
  layer.MarkAsDefaults(origin);
  config.Merge(layer);
  return absl::OkStatus();
}

absl::Status CheckFixed(const std::string& preset, const FixedKey& fixed, const Config& given,
                        const Config& config) {
  const ConfigValue* wanted = Find(given, fixed.key);
  if (wanted == nullptr || FormatTomlValue(*wanted) == FormatTomlValue(*Find(config, fixed.key))) {
    return absl::OkStatus();
  }
  return InvalidArgument(wanted->origin, ": ", fixed.key, " is ", FormatTomlValue(*wanted),
                         ", but the strategy '", preset, "' has ", fixed.key, " = ", fixed.value,
                         ": leave the key out, or use ", fixed.open_in);
}

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

absl::StatusOr<Config> WithPreset(const std::string& preset, const PresetKeys& keys,
                                  const Config& given) {
  Config config;
  LS_RETURN_IF_ERROR(Lay(keys.defaults, absl::StrCat("default of ", preset), config));
  config.Merge(given);
  const ConfigValue* dp = Find(config, "mesh.dp");
  if (const int64_t shards = Count(given, "cut.shards");
      dp != nullptr && dp->is_default && shards > 0) {
    const int64_t replicas = std::max<int64_t>(1, Count(given, "mesh.replicas"));
    const int64_t ranks = replicas * Count(config, "mesh.dp");
    if (shards % ranks != 0 || !std::has_single_bit(static_cast<uint64_t>(shards / ranks))) {
      LS_RETURN_IF_ERROR(Lay(absl::StrCat("mesh.dp = ", std::max<int64_t>(1, shards / replicas)),
                             "cut.shards / mesh.replicas", config));
    }
  }
  for (const FixedKey& fixed : keys.fixed) {
    LS_RETURN_IF_ERROR(Lay(absl::StrCat(fixed.key, " = ", fixed.value),
                           absl::StrCat("fixed by ", preset), config));
    LS_RETURN_IF_ERROR(CheckFixed(preset, fixed, given, config));
  }
  return config;
}

}  // namespace lockstep
