#include "core/comm/local/mailbox.h"

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

namespace lockstep {
namespace {

void TakeSide(const Call& call, RankEngine& engine, Transfer& transfer) {
  if (call.signature.operation == Operation::kSend) {
    transfer.source = call.input.raw();
    transfer.sender = &engine;
  } else {
    transfer.target = call.output.raw();
    transfer.receiver = &engine;
  }
}

// The two sides of a message often come at the same moment, and the lock is held for a tenth of a
// microsecond: sleeping, as std::mutex does at once, costs a hundred times as much.
std::unique_lock<std::mutex> LockPolling(std::mutex& mutex) {
  for (int i = 0; i < 1000; ++i) {
    if (mutex.try_lock()) return std::unique_lock(mutex, std::adopt_lock);
  }
  return std::unique_lock(mutex);
}

}  // namespace

Mailbox::Posted Mailbox::Post(int from, const Call& call, RankEngine& engine) {
  const Signature& signature = call.signature;
  const std::unique_lock<std::mutex> lock = LockPolling(mutex_);
  if (waiting_.size() <= static_cast<size_t>(from)) waiting_.resize(static_cast<size_t>(from) + 1);
  Waiting& waiting = waiting_[static_cast<size_t>(from)];

  if (waiting.empty() || waiting.front()->signature.operation == signature.operation) {
    auto transfer = std::make_shared<Transfer>();
    transfer->signature = signature;
    transfer->label = call.label;
    transfer->bytes = HostBytes(signature);
    TakeSide(call, engine, *transfer);
    waiting.push_back(transfer);
    return {std::move(transfer), Meeting::kFirst};
  }
  std::shared_ptr<Transfer> transfer = std::move(waiting.front());
  waiting.erase(waiting.begin());
  // Sides that disagree stay half, so that nothing moves.
  if (transfer->signature.count != signature.count ||
      transfer->signature.dtype != signature.dtype ||
      transfer->signature.memory != signature.memory) {
    return {std::move(transfer), Meeting::kDisagree};
  }
  TakeSide(call, engine, *transfer);
  Transfer::State half = Transfer::State::kHalf;  // unless it has withdrawn
  transfer->state.compare_exchange_strong(half, Transfer::State::kMatched);
  return {std::move(transfer), Meeting::kMatched};
}

}  // namespace lockstep
