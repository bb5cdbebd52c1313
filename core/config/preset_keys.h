#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/config/config.h"

namespace lockstep {

// A key that makes a strategy what it is.
struct FixedKey {
  std::string key;    // "mesh.pp"
  std::string value;  // TOML
  // Which strategies leave the key open, for who wants another value: "layerwise, gpipe".
  std::string open_in;
};

// What a strategy says about the configuration of its runs.
struct PresetKeys {
  // TOML: values that a configuration may replace.
  std::string defaults = {};
  std::vector<FixedKey> fixed = {};
};

// InvalidArgument for keys that earlier versions knew under another name, with the names that they
// have now.
absl::Status CheckMovedKeys(const Config& config);

// Lays `given`, all that a user says, over the preset's defaults, and adds what the preset fixes.
// Where nobody gives mesh.dp but a preset's default, and so many ranks cannot share the given
// cut.shards, mesh.dp becomes cut.shards / mesh.replicas: one shard a rank. InvalidArgument where
// `given` has another value for a fixed key.
absl::StatusOr<Config> WithPreset(const std::string& preset, const PresetKeys& keys,
                                  const Config& given);

}  // namespace lockstep
