#include "core/base/thread_team.h"

#include <glog/logging.h>
#include <immintrin.h>     // _mm_pause
#include <sys/resource.h>  // getrusage

#include <chrono>
#include <system_error>  // what std::thread throws
#include <utility>

namespace lockstep {
namespace {

using Clock = WorkerBenefit::Clock;

// How long an idle worker looks for the next loop before it sleeps: longer than what lies between
// two loops of a step. Waking it costs some 50 us.
constexpr Clock::duration kWorkerSpin = std::chrono::milliseconds(1);
// How long the owner waits for begun chunks before it gives its core to a worker that has none.
constexpr Clock::duration kOwnerSpin = std::chrono::microseconds(200);

thread_local bool in_chunk = false;

bool IsOpen(uint32_t state) { return state % 2 == 0; }

// How often the calling thread has lost its core to another thread although it could go on.
int64_t CoresLost() {
  rusage usage{};
  PCHECK(getrusage(RUSAGE_THREAD, &usage) == 0);
  return usage.ru_nivcsw;
}

// Spins until `atomic` differs from `value` or `span` has passed; returns the last value seen.
uint32_t SpinWhile(const std::atomic<uint32_t>& atomic, uint32_t value, Clock::duration span) {
  const Clock::time_point end = Clock::now() + span;
  do {
    for (int i = 0; i < 64; ++i) {
      const uint32_t now = atomic.load(std::memory_order_acquire);
      if (now != value) return now;
      _mm_pause();
    }
  } while (Clock::now() < end);
  return value;
}

}  // namespace

ThreadTeam::ThreadTeam(int threads) : threads_(threads), slots_(std::make_unique<Slot[]>(threads)) {
  CHECK_GE(threads, 2);
  workers_.reserve(threads - 1);
  for (int worker = 1; worker < threads; ++worker) {
    try {
      workers_.emplace_back([this, worker] { Work(worker); });
    } catch (const std::system_error& error) {
      // The loops are made all the same, by fewer threads.
      LOG(WARNING) << "could not start thread " << worker + 1 << " of " << threads
                   << " of a rank: " << error.what();
      break;
    }
  }
}

ThreadTeam::~ThreadTeam() {
  ends_.store(true);
  for (size_t i = 1; i <= workers_.size(); ++i) {
    slots_[i].state.store(2 * ++loop_ + 1);  // nothing to take; wakes the worker
    slots_[i].state.notify_one();
  }
  for (std::thread& worker : workers_) worker.join();
}

bool ThreadTeam::InChunk() { return in_chunk; }

void ThreadTeam::Run(int chunks, void (*run)(void* context, int chunk), void* context) {
  const Clock::time_point begin = Clock::now();
  if (workers_.empty() || !benefit_.Shares(begin)) {
    in_chunk = true;
    struct Leave {
      ~Leave() { in_chunk = false; }
    } leave;
    for (int chunk = 0; chunk < chunks; ++chunk) run(context, chunk);
    return;
  }
  run_ = run;
  context_ = context;
  ++loop_;
  unfinished_.store(static_cast<uint32_t>(chunks), std::memory_order_relaxed);
  for (int chunk = 1; chunk < chunks; ++chunk) {
    // Sequentially consistent: a worker that is about to sleep sees it, or is seen to sleep.
    slots_[chunk].state.store(2 * loop_);
    slots_[chunk].state.notify_one();
  }
  in_chunk = true;
  RunChunk(0);
  const int own = 1 + RunOpenChunks();
  in_chunk = false;
  const Clock::time_point done = Clock::now();
  WaitForTaken();
  const Clock::time_point end = Clock::now();
  benefit_.Record(done - begin, end - done, (done - begin) * (chunks - own) / own);
  if (benefit_.HasWindow()) {
    const int64_t lost = CoresLost();
    benefit_.Judge(end, lost != cores_lost_);
    cores_lost_ = lost;
  }
  if (std::exception_ptr thrown = std::exchange(thrown_, nullptr)) std::rethrow_exception(thrown);
}

bool ThreadTeam::Take(Slot& slot) {
  uint32_t state = slot.state.load(std::memory_order_acquire);
  return IsOpen(state) && slot.state.compare_exchange_strong(state, state + 1);
}

void ThreadTeam::RunChunk(int chunk) {
  try {
    run_(context_, chunk);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (thrown_ == nullptr) thrown_ = std::current_exception();
  }
  if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
}

int ThreadTeam::RunOpenChunks() {
  int count = 0;
  for (int chunk = 1; chunk < threads_; ++chunk) {
    if (!Take(slots_[chunk])) continue;
    RunChunk(chunk);
    ++count;
  }
  return count;
}

void ThreadTeam::WaitForTaken() {
  uint32_t unfinished = unfinished_.load(std::memory_order_acquire);
  while (unfinished != 0) {
    const uint32_t seen = SpinWhile(unfinished_, unfinished, kOwnerSpin);
    if (seen == unfinished) unfinished_.wait(unfinished, std::memory_order_acquire);
    unfinished = unfinished_.load(std::memory_order_acquire);
  }
}

void ThreadTeam::Work(int worker) {
  in_chunk = true;
  Slot& own = slots_[worker];
  while (true) {
    const uint32_t state = own.state.load(std::memory_order_acquire);
    if (ends_.load()) return;
    if (IsOpen(state)) {
      if (Take(own)) {
        RunChunk(worker);
        RunOpenChunks();
      }
    } else if (SpinWhile(own.state, state, kWorkerSpin) == state) {
      own.state.wait(state, std::memory_order_acquire);
    }
  }
}

}  // namespace lockstep
