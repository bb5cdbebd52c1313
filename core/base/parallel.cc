#include "core/base/parallel.h"

#include <glog/logging.h>
#include <sched.h>  // sched_getaffinity

#include <algorithm>  // std::clamp, std::max
#include <cstdint>
#include <memory>

#include "core/base/thread_team.h"

namespace lockstep {
namespace {

// Cores that this process may use: mpirun and taskset leave it some of the machine's.
int AllowedCores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? std::max(CPU_COUNT(&cores), 1) : 1;
}

// What the loops of one thread need.
struct LoopState {
  int threads = AllowedCores();
  std::unique_ptr<ThreadTeam> team;  // from the first loop of several chunks on
  int skips = 0;                     // living LoopsSkipped
};

LoopState& State() {
  thread_local LoopState state;
  return state;
}

}  // namespace

int MaxThreads() { return State().threads; }

void SetThreads(int threads) {
  CHECK_GE(threads, 1);
  LoopState& state = State();
  if (threads == state.threads) return;
  state.team.reset();
  state.threads = threads;
}

LoopsSkipped::LoopsSkipped() { ++State().skips; }
LoopsSkipped::~LoopsSkipped() { --State().skips; }

bool SkipsLoops() { return State().skips > 0; }

int ParallelChunks(int64_t n, int64_t grain) {
  DCHECK_GE(grain, 1);
  if (n < 2 * grain || ThreadTeam::InChunk()) return 1;
  return static_cast<int>(std::clamp<int64_t>(n / grain, 1, MaxThreads()));
}

namespace parallel_internal {

void RunChunks(int chunks, void (*run)(void* context, int chunk), void* context) {
  LoopState& state = State();
  if (state.team == nullptr) state.team = std::make_unique<ThreadTeam>(state.threads);
  state.team->Run(chunks, run, context);
}

}  // namespace parallel_internal
}  // namespace lockstep
