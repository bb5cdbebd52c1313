#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace lockstep {

// Where the description of this machine lies, which //tools/plan:calibrate writes: the file that
// LOCKSTEP_MACHINE names; else lockstep/machine.toml in XDG_CONFIG_HOME, if that is an absolute
// path, as the XDG Base Directory Specification asks for; else in ~/.config. NotFound if there is
// no home directory either.
absl::StatusOr<std::string> MachineFile();

}  // namespace lockstep
