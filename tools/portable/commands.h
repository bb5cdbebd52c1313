#pragma once

#include <functional>
#include <string>
#include <vector>

namespace lockstep {

// What the packed program does for a first argument: `run` is a program's main, for which argv[0]
// is that argument.
struct Command {
  std::string name;
  std::function<int(int argc, char** argv)> run;
};

// Tests and benchmarks of GPUs; none where this was built without CUDA.
std::vector<Command> GpuCommands();

}  // namespace lockstep
