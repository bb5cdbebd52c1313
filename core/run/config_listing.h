#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/config/command_line.h"
#include "core/run/strategy.h"
#include "core/run/training_run.h"

namespace lockstep {

// The tables and keys of a strategy's configuration, with their defaults, as --help shows them.
std::string ConfigHelp(const StrategyDefinition& strategy, const ModelFactory& make_model);

// The configuration as it will run, as --print_config writes it: TOML with every key in effect, and
// behind each where its value comes from: a file and line, --set, the preset, or the default.
// Reports what PrepareRun would, and makes no run directory.
absl::StatusOr<std::string> EffectiveConfig(const CommandLine& command_line,
                                            const StrategyDefinition& strategy,
                                            const ModelFactory& make_model);

}  // namespace lockstep
