// What the user asks of the program.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/collectives/demo.h"

namespace lockstep {

struct Request {
  bool help = false;
  bool all = false;                     // one page of all demos, else a picture of one
  std::vector<DemoOptions> demos = {};  // to run, in this order
  std::string out;                      // the file to write, from where the user stands
};

// Reads the arguments behind the program's name; "--flag value" and "--flag=value" are the same.
// Names that are not known are errors that suggest the nearest; options that the operation has no
// use for are errors, but with --all they apply where they can.
absl::StatusOr<Request> ParseRequest(const std::vector<std::string>& command_line);

// What --help prints.
std::string Usage();

}  // namespace lockstep
