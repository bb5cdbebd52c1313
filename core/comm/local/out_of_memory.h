#pragma once

#include <chrono>
#include <exception>
#include <new>
#include <thread>

namespace lockstep {

// Calls `action` until it no longer throws std::bad_alloc: for what has to be done while a step
// unwinds for want of memory, which gives some back. `action` may be called again after it has
// thrown. Ends the program when there is no memory for ten seconds.
template <typename Action>
void DoOnceThereIsMemory(Action action) {
  constexpr int kMostTries = 10'000;
  for (int i = 0; i < kMostTries; ++i) {
    try {
      return action();
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  std::terminate();
}

}  // namespace lockstep
