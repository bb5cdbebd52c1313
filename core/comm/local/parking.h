#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace lockstep {

// Where threads sleep until something that they wait for may have changed (an event count). Waking
// costs one load where nobody sleeps. No wake-up is lost:
//
//   Parking::Sleeper sleeper(parking);
//   for (;;) {
//     const uint64_t epoch = sleeper.epoch();
//     if (condition()) break;
//     sleeper.Sleep(epoch, deadline);
//   }
//
// Whoever makes the condition true does so by a sequentially consistent operation (or under a lock
// that condition() takes) and then calls WakeSleepers().
class Parking {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // A thread that may sleep here, for as long as it lives.
  class Sleeper {
   public:
    explicit Sleeper(Parking& parking) : parking_(parking) { parking_.sleepers_.fetch_add(1); }
    ~Sleeper() { parking_.sleepers_.fetch_sub(1); }
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;

    uint64_t epoch() const {
      std::lock_guard lock(parking_.mutex_);
      return parking_.epoch_;
    }

    // Sleeps until a wake-up after `epoch` was read, or the deadline; says whether it was the
    // former.
    bool Sleep(uint64_t epoch, TimePoint deadline) const {
      std::unique_lock lock(parking_.mutex_);
      return parking_.changed_.wait_until(lock, deadline, [&] { return parking_.epoch_ != epoch; });
    }
    void Sleep(uint64_t epoch) const {
      std::unique_lock lock(parking_.mutex_);
      parking_.changed_.wait(lock, [&] { return parking_.epoch_ != epoch; });
    }

   private:
    Parking& parking_;
  };

  void WakeSleepers() {
    if (sleepers_.load() == 0) return;
    {
      std::lock_guard lock(mutex_);
      ++epoch_;
    }
    changed_.notify_all();
  }

 private:
  std::atomic<int> sleepers_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t epoch_ = 0;  // counts wake-ups
};

}  // namespace lockstep
