#include "foresight/machine_file.h"

#include <cstdlib>  // std::getenv

#include "absl/status/status.h"

namespace lockstep {

absl::StatusOr<std::string> MachineFile() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (std::string file = variable("LOCKSTEP_MACHINE"); !file.empty()) return file;
  const std::string config = variable("XDG_CONFIG_HOME"), home = variable("HOME");
  if (!config.empty() && config[0] == '/') return config + "/lockstep/machine.toml";
  if (!home.empty()) return home + "/.config/lockstep/machine.toml";
  return absl::NotFoundError(
      "no place for this machine's description: set LOCKSTEP_MACHINE, XDG_CONFIG_HOME or HOME");
}

}  // namespace lockstep
