#pragma once

#include <sys/types.h>  // pid_t

#include <string>
#include <vector>

namespace lockstep {

// A process of a launched run, as /proc shows it.
struct LaunchedProcess {
  enum class Kind { kRank, kWorker, kMpirun, kLauncher };  // srun counts as mpirun
  pid_t pid = -1;
  Kind kind = Kind::kRank;
};

// The processes, but this one, that have the run directory `out` among their arguments: for tests
// and benchmarks that end them. Zombies are none.
std::vector<LaunchedProcess> ProcessesOf(const std::string& out);

}  // namespace lockstep
