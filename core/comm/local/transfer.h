#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/comm/local/rank_engine.h"
#include "core/comm/signature.h"

namespace lockstep {

// One message between two members: a send and a recv that meet. Shared by both; whichever of their
// threads are free move the data, piece by piece, straight from memory to memory.
struct Transfer {
  enum class State {
    kHalf,       // one side has called
    kMatched,    // both have, and agree
    kMoving,     // threads copy
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

  // How many pieces some thread has taken on, and how many are there.
  alignas(64) std::atomic<int64_t> taken = 0;
  std::atomic<int64_t> arrived = 0;

  // The call of the side that came first.
  Signature signature;
  std::string label;

  // If the message is matched, moves the pieces that nobody has taken on. Whoever moves the last
  // one to arrive tells those who wait.
  void TryMove();

  // Gives up. Returns when nobody touches the memory, and says whether the message had arrived.
  bool Withdraw();
};

}  // namespace lockstep
