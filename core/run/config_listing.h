#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/config/command_line.h"
#include "core/config/config.h"
#include "core/run/leg/training_run.h"
#include "core/run/strategy/strategy.h"

namespace lockstep {

// A key that a program understands.
struct ListedKey {
  RecordedKey key;
  std::vector<std::string> kinds = {};  // of its table that have it; empty: all
};

// A table of them.
struct ListedTable {
  std::string only_with = "";           // "model.kind = \"llama\""; empty: always there
  std::string selector = "";            // the key that chooses among its kinds; empty: one kind
  std::vector<std::string> kinds = {};  // the choices
  std::vector<ListedKey> keys;          // in the order in which readers ask
};

// The tables, by name, and keys of a strategy's configuration. The strategy's presets are set.
std::map<std::string, ListedTable> ListKeys(const StrategyDefinition& strategy,
                                            const ModelFactory& make_model);

// The value that a listed key has where nobody sets it, as TOML; empty: it is required.
std::string DefaultOf(const RecordedKey& key);

// The same as --help shows them, each key with its default and its meaning.
std::string ConfigHelp(const StrategyDefinition& strategy, const ModelFactory& make_model);

// The configuration as it will run, as --print_config writes it: TOML with every key in effect, and
// behind each where its value comes from: a file and line, --set, the preset, or the default.
// Reports what PrepareRun would, and makes no run directory.
//
// Where a run has legs, the TOML says what they share. Comments behind it list, for each leg that
// is reached, its steps, its strategy, and the keys that legs may lay out in different ways; the
// first line says "# legs with up to 8 ranks". `strategies` are those that legs may name; empty:
// train.legs is not looked at, and the listing is of `strategy` on the configuration's own mesh.
absl::StatusOr<std::string> EffectiveConfig(const CommandLine& command_line,
                                            const StrategyDefinition& strategy,
                                            const ModelFactory& make_model,
                                            const std::vector<StrategyDefinition>& strategies = {});

}  // namespace lockstep
