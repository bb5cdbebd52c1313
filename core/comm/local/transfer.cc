#include "core/comm/local/transfer.h"

#include <cstddef>
#include <cstring>  // std::memcpy
#include <thread>

#include "core/base/clock.h"

namespace lockstep {

void Transfer::TryMove() {
  State matched = State::kMatched;
  if (!state.compare_exchange_strong(matched, State::kMoving)) return;
  if (bytes > 0) std::memcpy(target, source, static_cast<size_t>(bytes));
  end_nanos = NowNanos();
  state.store(State::kDone);
  sender->NotifyWaiters();
  receiver->NotifyWaiters();
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
