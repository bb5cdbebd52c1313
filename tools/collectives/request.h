// What the user asks of the program.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/flags.h"
#include "tools/collectives/demo.h"

namespace lockstep {

struct Request {
  bool all = false;                     // one page of all demos, else a picture of one
  std::vector<DemoOptions> demos = {};  // to run, in this order
  std::string out;                      // the file to write, from where the user stands
};

// What the program's command line accepts.
ProgramFlags CollectivesFlags();

// Reads the flags, once they are parsed; `words` are those among them. InvalidArgument: names that
// are not known (the message suggests the nearest), and flags that the operation has no use for;
// with
// --all flags apply where they can.
absl::StatusOr<Request> RequestFromFlags(const std::vector<std::string>& words);

}  // namespace lockstep
