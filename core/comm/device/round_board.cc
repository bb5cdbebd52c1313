#include "core/comm/device/round_board.h"

#include "glog/logging.h"

namespace lockstep {

void Round::Put(int member, Offer offer) {
  std::lock_guard lock(mutex_);
  offers_[static_cast<size_t>(member)] = std::move(offer);
}

const std::vector<Round::Offer>* Round::Claim() {
  std::lock_guard lock(mutex_);
  if (state_ == State::kOver) return nullptr;
  CHECK(state_ == State::kOpen) << "claimed twice";
  state_ = State::kClaimed;
  return &offers_;
}

void Round::Publish(End end) {
  std::lock_guard lock(mutex_);
  end_ = std::move(end);
  state_ = State::kOver;
  over_.notify_all();
}

Round::End Round::AwaitEnd() {
  std::unique_lock lock(mutex_);
  over_.wait(lock, [this] { return state_ == State::kOver; });
  return end_;
}

Round::End Round::Withdraw() {
  {
    std::lock_guard lock(mutex_);
    if (state_ == State::kOpen) {
      state_ = State::kOver;
      over_.notify_all();
    }
  }
  return AwaitEnd();
}

std::shared_ptr<Round> RoundBoard::Find(Pair pair, int64_t number, int members) {
  std::lock_guard lock(mutex_);
  const auto found = rounds_.try_emplace({pair, number}).first;
  Entry& entry = found->second;
  if (entry.round == nullptr) entry.round = std::make_shared<Round>(members);
  std::shared_ptr<Round> round = entry.round;
  if (++entry.asked == members) rounds_.erase(found);
  return round;
}

std::shared_ptr<RoundBoard> RoundBoards::Find(const GroupInfo& group, int earlier) {
  std::lock_guard lock(mutex_);
  std::weak_ptr<RoundBoard>& known = boards_[{group.members, group.name, earlier}];
  std::shared_ptr<RoundBoard> board = known.lock();
  if (board == nullptr) known = board = std::make_shared<RoundBoard>();
  return board;
}

}  // namespace lockstep
