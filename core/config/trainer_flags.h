// The flags of every trainer. Only programs that train link this: other programs have flags of the
// same names.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/config/command_line.h"

namespace lockstep {

// Reads the arguments behind the program's name (ParseFlags in core/base/flags.h says how).
// Relative paths count from where the user stands, also under `bazel run`, which starts programs
// elsewhere; a configuration that is not there is looked for in the program's own folder too, where
// Bazel puts the files that BUILD names. InvalidArgument for what the command line has wrong.
absl::StatusOr<CommandLine> ParseCommandLine(int argc, char** argv);

// What --help prints.
std::string Usage(const std::string& strategy);

}  // namespace lockstep
