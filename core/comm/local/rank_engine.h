#pragma once

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/clock.h"
#include "core/comm/local/parking.h"

namespace lockstep {

// Something that a rank's worker carries on when nobody else does.
class Background {
 public:
  virtual ~Background() = default;
  // Goes as far as possible without waiting for peers.
  virtual void Advance() = 0;
};

// The threads of one rank where they have to do with communication: how they wait, and the worker
// that carries on what nobody waits for. The first call that may need the worker starts it.
class RankEngine {
 public:
  // Whether each rank has a core for itself, as far as can be known: threads that wait then poll
  // for a while, else they sleep soon.
  enum class Cores { kOwn, kShared };
  // Hears on the worker's thread of what the worker's work has thrown, as a status. The worker goes
  // on.
  using Failed = std::function<void(const absl::Status&)>;
  explicit RankEngine(Cores cores, Failed failed = nullptr)
      : cores_(cores), failed_(std::move(failed)) {}
  ~RankEngine() { Stop(); }

  // Ends the worker; what it was to do is not done.
  void Stop();

  // The worker advances this from now on, whenever it is woken. Remove waits until the worker has
  // let go of it.
  void Add(Background* background);
  void Remove(Background* background);

  // The worker runs this once.
  void AddJob(std::function<void()> job);

  // Something has happened at a peer that this rank may be waiting for.
  void Notify() {
    sleepers_.WakeSleepers();
    if (needy_.load() > 0) WakeWorker();
  }
  // The same, and peers wait for this rank.
  void Urge() {
    sleepers_.WakeSleepers();
    if (needy_.load() + patient_.load() > 0) WakeWorker();
  }
  // The same, where it can concern only threads that wait.
  void NotifyWaiters() { sleepers_.WakeSleepers(); }

  // What the worker is needed for: kPatient is so little that the rank's own thread may as well do
  // it when it comes by, unless peers wait for it.
  enum class Need { kNone, kPatient, kNeedy };
  // While there are more needs added than removed, Notify wakes the worker for kNeedy ones, and
  // Urge for all. To be called by the rank's own threads: the worker, if there is none yet,
  // inherits the processors of the caller.
  void Add(Need need);
  void Remove(Need need);

  void WakeWorker();

  // Calls `over` until it returns true or the deadline has passed, and returns what it said last.
  // It polls for a short while, calls `delayed`, polls on, then sleeps until the next notification.
  template <typename Over, typename Delayed>
  bool WaitUntil(Over&& over, Parking::TimePoint deadline, Delayed&& delayed) {
    if (over()) return true;
    if (cores_ == Cores::kOwn) {
      if (Poll(over, kFirstPoll)) return true;
      // The system may have put the peer on this very core.
      sched_yield();
      if (Poll(over, kPatience)) return true;
      delayed();
      if (Poll(over, kSecondPoll)) return true;
    } else {
      // Letting the others run is cheaper than to sleep and be woken.
      for (int i = 0; i < kYields; ++i) {
        sched_yield();
        if (over()) return true;
      }
      delayed();
    }
    Parking::Sleeper sleeper(sleepers_);
    for (;;) {
      const uint64_t epoch = sleeper.epoch();
      if (over()) return true;
      if (!sleeper.Sleep(epoch, deadline)) return over();
    }
  }
  template <typename Over>
  bool WaitUntil(Over&& over, Parking::TimePoint deadline) {
    return WaitUntil(over, deadline, [] {});
  }

 private:
  static constexpr int64_t kFirstPoll = 3'000;  // ns; small calls take a third of it
  // Longer than a peer needs from a call to its wait: a worker that is woken meanwhile takes the
  // peer's core.
  static constexpr int64_t kPatience = 10'000;
  // Longer than it takes to be woken: else two ranks that once missed each other would go on waking
  // each other, call after call.
  static constexpr int64_t kSecondPoll = 30'000;
  static constexpr int kYields = 4;

  template <typename Over>
  static bool Poll(Over& over, int64_t nanos) {
    const int64_t end = NowNanos() + nanos;
    do {
      Relax();
      if (over()) return true;
    } while (NowNanos() < end);
    return false;
  }

  static void Relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  // With worker_mutex_ held, which it lets go of to say that there can be no worker.
  void StartWorker(std::unique_lock<std::mutex>& lock);
  void RunWorker();

  // Runs the jobs, and advances the backgrounds.
  void Work(std::vector<std::function<void()>>& jobs);

  const Cores cores_;
  const Failed failed_;  // null: nobody would hear
  Parking sleepers_;     // threads of the rank that wait for a call
  std::atomic<int> needy_ = 0;
  std::atomic<int> patient_ = 0;
  std::atomic<bool> started_ = false;

  std::mutex backgrounds_mutex_;  // held by the worker while it advances them
  std::vector<Background*> backgrounds_;

  std::mutex worker_mutex_;  // guards what follows
  std::condition_variable worker_wakes_;
  std::thread worker_;
  std::vector<std::function<void()>> jobs_;
  bool awake_ = false;  // there may be something to do
  bool stop_ = false;
};

}  // namespace lockstep
