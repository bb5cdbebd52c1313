#include "core/comm/local/transfer.h"

#include <algorithm>  // std::max, std::min
#include <cstddef>
#include <cstdint>
#include <thread>

#include "core/base/clock.h"
#include "core/comm/host_copy.h"

namespace lockstep {

void Transfer::TryMove() {
  // Long enough that taking one on costs nothing beside moving it.
  constexpr int64_t kPieceBytes = 1 << 20;
  State now = state.load();
  if (now == State::kMatched) state.compare_exchange_strong(now, State::kMoving);
  if (now != State::kMatched && now != State::kMoving) return;
  const int64_t pieces = std::max<int64_t>(1, (bytes + kPieceBytes - 1) / kPieceBytes);
  const Store store = StoreForCopies(bytes);
  while (taken.load() < pieces) {
    const int64_t piece = taken.fetch_add(1);
    if (piece >= pieces) return;
    const int64_t begin = piece * kPieceBytes;
    CopyToAll(source + begin, {target + begin}, std::min(kPieceBytes, bytes - begin), store);
    if (arrived.fetch_add(1) + 1 < pieces) continue;
    end_nanos = NowNanos();
    state.store(State::kDone);
    sender->NotifyWaiters();
    receiver->NotifyWaiters();
  }
}

bool Transfer::Withdraw() {
  for (;;) {
    State now = state.load();
    switch (now) {
      case State::kHalf:
      case State::kMatched:
        state.compare_exchange_strong(now, State::kWithdrawn);
        break;
      case State::kMoving:  // lasts as long as a copy
        std::this_thread::yield();
        break;
      case State::kDone:
        return true;
      case State::kWithdrawn:
        return false;
    }
  }
}

}  // namespace lockstep
