// The configuration of a run: TOML files in layers, and single values from the command line.
//
//   LS_ASSIGN_OR_RETURN(Config config, Config::FromFile("workload.toml"));
//   LS_ASSIGN_OR_RETURN(Config layer, Config::FromFile("ddp.toml"));
//   config.Merge(layer);
//   LS_RETURN_IF_ERROR(config.Set("mesh.dp=2"));
//
// Values are read, with their types and bounds checked, through ConfigReader (config_reader.h).

#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/config/config_value.h"

namespace lockstep {

// A key that readers ask a configuration for. Values are TOML.
struct RecordedKey {
  std::string name;      // without its table
  std::string expected;  // "a whole number"; with choices: "one of"
  std::vector<std::string> choices = {};
  std::string by_default = "";  // empty: the key is required
  std::string value = "";       // in effect: the configuration's, else by_default
  std::string source = "";      // where the configuration's value comes from; empty: by default
};

// What a program can be told: the keys of each table, in the order in which they were first asked
// for, each as it was last asked for.
using ConfigRecord = std::map<std::string, std::vector<RecordedKey>>;

// A table inside a configuration, or the place where one could be. Points into the Config, which
// must outlive it unchanged.
struct ConfigTable {
  std::string path;                    // "optimizer", "data.validation"; empty for the whole
  const ConfigValue* value = nullptr;  // null: absent, which reads like an empty table
  ConfigRecord* record = nullptr;      // notes what readers ask for; null: nobody wants to know
};

class Config {
 public:
  // An empty configuration.
  Config() = default;

  // Reads a TOML file. A file that cannot be read, or is malformed (with line and column), is an
  // error that names it.
  static absl::StatusOr<Config> FromFile(const std::string& path);

  // Parses TOML text; `source_name` stands for the file in messages.
  static absl::StatusOr<Config> FromString(const std::string& text, const std::string& source_name);

  // Lays `later` over this: tables are merged, any other value of `later` replaces ours.
  void Merge(const Config& later);

  // Lays one "dotted.key=value" over this, as given with --set. The value is read as TOML (3, 1e-3,
  // true, [1, 2], "text"); what is no TOML and opens no quote or bracket is a string as it stands,
  // so that paths and names need no quotes.
  absl::Status Set(const std::string& assignment);

  // Says of all values that `origin` has set them: a preset, whose values others replace.
  void MarkAsDefaults(const std::string& origin);

  // From here on, readers of this configuration note in `record`, which must outlive their work,
  // which keys they ask for. Copies made by other members do not.
  void RecordInto(ConfigRecord* record) { record_ = record; }

  // The table at a dotted path of bare keys; "" is the whole configuration.
  ConfigTable Table(const std::string& path) const;

  // The part under the given top-level keys, e.g. Only({"model", "data"}).Fingerprint().
  Config Only(const std::vector<std::string>& keys) const;

  // The same without the value at a dotted path of bare keys, if it is there.
  Config Without(const std::string& path) const;

  // All values as one TOML document, sorted: equal configurations give equal text, in whatever
  // order and from whatever files they came.
  std::string ToToml() const;

  // 16 hexadecimal digits that identify ToToml(): 64-bit FNV-1a. Stable between versions; kept in
  // checkpoints and compared between runs.
  std::string Fingerprint() const;

  // Values that differ, or that only one of the two has; sorted by key.
  struct Difference {
    std::string key;           // dotted
    std::string ours, theirs;  // as TOML; empty where there is none

    bool operator==(const Difference&) const = default;
  };
  std::vector<Difference> Differences(const Config& other) const;

 private:
  explicit Config(ConfigValue root) : root_(std::move(root)) {}

  ConfigValue root_;  // always a table
  ConfigRecord* record_ = nullptr;
};

}  // namespace lockstep
