#include "core/comm/local/mailbox.h"

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

namespace lockstep {

Mailbox::Posted Mailbox::Post(int from, Transfer::Side side) {
  const bool sends = side.signature.operation == Operation::kSend;
  std::lock_guard lock(mutex_);
  if (waiting_.size() <= static_cast<size_t>(from)) waiting_.resize(static_cast<size_t>(from) + 1);
  Waiting& waiting = waiting_[static_cast<size_t>(from)];
  const auto side_of = [sends](Transfer& transfer) -> Transfer::Side& {
    return sends ? transfer.send : transfer.recv;
  };

  if (waiting.empty() || side_of(*waiting.front()).called) {
    auto transfer = std::make_shared<Transfer>();
    transfer->bytes = PayloadBytes(side.signature);
    side_of(*transfer) = std::move(side);
    waiting.push_back(transfer);
    return {std::move(transfer), false};
  }
  std::shared_ptr<Transfer> transfer = std::move(waiting.front());
  waiting.erase(waiting.begin());
  side_of(*transfer) = std::move(side);
  // Sides that disagree stay half, so that nothing moves. (One that has withdrawn stays so, too.)
  if (transfer->Agree()) {
    Transfer::State half = Transfer::State::kHalf;
    transfer->state.compare_exchange_strong(half, Transfer::State::kMatched);
  }
  return {std::move(transfer), true};
}

}  // namespace lockstep
