#include "tools/bench/core_binding.h"

#include <sched.h>

namespace lockstep {

int AvailableCores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

void BindRank(int rank, int ranks) {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0 || CPU_COUNT(&cores) < ranks) return;
  int skip = rank;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &cores) || skip-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof(one), &one);  // where that is forbidden, threads stay free
    return;
  }
}

}  // namespace lockstep
