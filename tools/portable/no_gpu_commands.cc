#include <vector>

#include "tools/portable/commands.h"

namespace lockstep {

std::vector<Command> GpuCommands() { return {}; }

}  // namespace lockstep
