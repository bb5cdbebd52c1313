#include "core/config/command_line.h"

#include "core/base/status.h"

namespace lockstep {

absl::StatusOr<Config> LoadConfig(const CommandLine& command_line) {
  if (command_line.configs.empty()) {
    return absl::InvalidArgumentError(
        "no configuration: give --config FILE, e.g. an experiment's workload.toml");
  }
  Config config;
  for (const std::string& path : command_line.configs) {
    LS_ASSIGN_OR_RETURN(const Config layer, Config::FromFile(path));
    config.Merge(layer);
  }
  for (const std::string& assignment : command_line.assignments) {
    LS_RETURN_IF_ERROR(config.Set(assignment));
  }
  return config;
}

}  // namespace lockstep
