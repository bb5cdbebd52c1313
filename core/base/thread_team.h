#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/worker_benefit.h"

namespace lockstep {

// The threads that share the loops of one thread, the owner: the owner itself and its workers.
//
// Worker i prefers chunk i, so that a chunk of memory stays in one core's cache from loop to loop.
// A chunk that its worker has not begun when another thread is done with its own is taken by that
// thread: a loop waits for chunks that have been begun, and never for a worker to wake up. Idle
// workers spin for a short time, so that loops in close succession begin at once, and then sleep.
// While workers do not pay on a busy machine, the owner runs the loops alone (WorkerBenefit).
//
// A loop costs its owner about a microsecond. Only the owner may call Run.
class ThreadTeam {
 public:
  // Requires threads >= 2, the owner included. Where the system grants fewer threads, the team is
  // smaller, which is logged.
  explicit ThreadTeam(int threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  // Calls run(context, chunk) for each chunk of [0, chunks), each on one thread, and returns when
  // all calls have returned. Chunks must not wait for each other. Rethrows what a call has thrown,
  // the first of several. Requires 1 <= chunks <= threads().
  void Run(int chunks, void (*run)(void* context, int chunk), void* context);

  int threads() const { return threads_; }

  // Whether the calling thread is in a call that some team's Run made.
  static bool InChunk();

 private:
  // Whether a chunk of the present loop is open, and to whom: 2 n while chunk i of loop n is to be
  // taken, 2 n + 1 from then on. A worker that was late for loop n cannot take a chunk of loop
  // n + 1 for one of loop n, because taking compares the number.
  struct alignas(64) Slot {
    std::atomic<uint32_t> state{1};
  };

  void Work(int worker);
  // Runs a chunk that this thread has taken.
  void RunChunk(int chunk);
  // Takes and runs open chunks of the present loop; returns how many.
  int RunOpenChunks();
  bool Take(Slot& slot);
  void WaitForTaken();

  const int threads_;  // as asked for
  WorkerBenefit benefit_;
  int64_t cores_lost_ = 0;  // by the owner, when the last window was judged

  // The present loop, written by the owner before it opens slots, and constant until all are done.
  void (*run_)(void* context, int chunk) = nullptr;
  void* context_ = nullptr;
  uint32_t loop_ = 0;

  std::unique_ptr<Slot[]> slots_;  // [threads_]; slot 0 is unused: the owner begins with chunk 0
  alignas(64) std::atomic<uint32_t> unfinished_{0};  // chunks of the present loop
  std::atomic<bool> ends_{false};
  std::mutex mutex_;
  std::exception_ptr thrown_;  // guarded by mutex_
  std::vector<std::thread> workers_;
};

}  // namespace lockstep
