#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/comm/local/rank_engine.h"
#include "core/comm/signature.h"

namespace lockstep {

// One message between two members: a send and a recv that meet. Shared by both; whichever of their
// threads is free first moves the data, straight from memory to memory.
struct Transfer {
  enum class State {
    kHalf,       // one side has called
    kMatched,    // both have, and agree
    kMoving,     // a thread copies
    kDone,       // the data is there
    kWithdrawn,  // the world failed before anything moved
  };

  // What both sides touch, in one cache line.
  alignas(64) std::atomic<State> state = State::kHalf;
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  RankEngine* sender = nullptr;
  RankEngine* receiver = nullptr;
  int64_t bytes = 0;
  int64_t end_nanos = 0;  // set before kDone

  // Of the side that came first: its call.
  Signature signature;
  std::string label;

  // If the message is matched and nobody moves it, moves it and tells those who wait.
  void TryMove();

  // Gives up. Returns when nobody touches the memory, and says whether the message had arrived.
  bool Withdraw();
};

}  // namespace lockstep
