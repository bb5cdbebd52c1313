#include "core/config/preset_keys.h"

#include <algorithm>
#include <bit>  // std::has_single_bit
#include <cstdint>

#include "absl/strings/str_cat.h"
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
  return absl::InvalidArgumentError(absl::StrCat(wanted->origin, ": ", fixed.key, " is ",
                                                 FormatTomlValue(*wanted), ", but the strategy '",
                                                 preset, "' has ", fixed.key, " = ", fixed.value,
                                                 ": leave the key out, or use ", fixed.open_in));
}

}  // namespace

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
