#include "core/comm/mpi/collective_queue.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/comm/mpi/call_state.h"
#include "glog/logging.h"

namespace lockstep::mpi {
namespace {

bool AllDone(std::vector<Transport::Request>& requests) {
  bool all = true;
  for (Transport::Request& request : requests) all = request.Done() && all;
  return all;
}

}  // namespace

int64_t HeldBytes(const Signature& signature, int size, bool in_place) {
  const int64_t bytes = Movement::HeldBytes(signature, size, in_place);
  return bytes > 0 && LargestInputBytes(signature, size) > kSmallBytes ? bytes : 0;
}

class CollectiveQueue::Collective final : public CallState {
 public:
  Collective(std::shared_ptr<RankState> rank, std::shared_ptr<CollectiveQueue> queue, Call call,
             MemberBuffers buffers, int64_t sequence, std::shared_ptr<const Tensor> held)
      : CallState(std::move(rank), queue->group_, queue, std::move(call), sequence,
                  std::move(held)),
        queue_(*queue),
        buffers_(buffers) {}

  const Signature& signature() const { return call().signature; }
  const MemberBuffers& buffers() const { return buffers_; }

 protected:
  std::string DescribeMissing() const override {
    const Collective& head = *queue_.calls_.front();
    const std::vector<int> missing = queue_.Ranks(/*arrived=*/false);
    if (missing.empty()) {
      return absl::StrCat("all ranks came to ", head.Describe(), ", but some did not finish it");
    }
    return absl::StrCat(RanksText(missing), " did not come to ", head.Describe(), ", which ",
                        RanksText(queue_.Ranks(/*arrived=*/true)), " called");
  }

 private:
  CollectiveQueue& queue_;
  const MemberBuffers buffers_;
};

CollectiveQueue::CollectiveQueue(std::shared_ptr<RankState> rank,
                                 std::shared_ptr<const GroupInfo> group, int context)
    : rank_(std::move(rank)),
      group_(std::move(group)),
      context_(context),
      members_(static_cast<size_t>(group_->size())) {
  RankState::Lock lock(rank_->mutex());
  rank_->Add(this);
}

CollectiveQueue::~CollectiveQueue() {
  RankState::Lock lock(rank_->mutex());
  rank_->Remove(this);
}

Work CollectiveQueue::Issue(Call call, MemberBuffers buffers) {
  std::shared_ptr<const Tensor> held;
  if (const Tensor& any = call.input.defined() ? call.input : call.output; any.defined()) {
    held = held_.Hold(HeldBytes(call.signature, group_->size(), buffers.input == buffers.output),
                      any.allocator());
  }
  RankState::Lock lock(rank_->mutex());
  auto collective = std::make_shared<Collective>(rank_, shared_from_this(), std::move(call),
                                                 buffers, next_sequence_++, std::move(held));
  calls_.push_back(collective);
  Advance();
  if (!collective->over()) rank_->Wake();
  return Work(std::move(collective));
}

void CollectiveQueue::Advance() {
  while (!calls_.empty()) {
    const Collective& head = *calls_.front();
    if (rank_->failed()) {
      if (rank_->MayEnd() != RankState::End::kNotYet) EndAll();
      return;
    }
    switch (phase_) {
      case Phase::kQueued:
        Announce(head);
        phase_ = Phase::kAnnounced;
        break;
      case Phase::kAnnounced:
        if (!AllArrived()) return FailIfMembersLeft(head);
        if (!Agree(head)) break;
        if (LargestInputBytes(head.signature(), group_->size()) <= kSmallBytes) {
          TakeOutput(head);
          EndHead(absl::OkStatus());
          break;
        }
        movement_ = std::make_unique<Movement>(head.signature(), group_->size(), group_->rank,
                                               head.buffers(), head.held());
        phase_ = Phase::kMoving;
        break;
      case Phase::kMoving:
        if (!Exchanged()) return;
        if (movement_->Next(&exchange_)) {
          StartExchange();
        } else {
          EndHead(absl::OkStatus());
        }
        break;
    }
  }
}

bool CollectiveQueue::Settle() {
  bool settled = true;
  for (Member& member : members_) settled = member.request.GiveUp() && settled;
  for (Transport::Request& receive : receives_) settled = receive.GiveUp() && settled;
  return settled;
}

void CollectiveQueue::Announce(const Collective& head) {
  Announcement own = {
      .sequence = head.sequence(), .signature = head.signature(), .label = head.call().label};
  const int64_t largest = LargestInputBytes(head.signature(), group_->size());
  if (largest <= kSmallBytes) {
    const int64_t bytes = InputBytes(head.signature(), group_->size(), group_->rank);
    own.data.assign(head.buffers().input, head.buffers().input + bytes);
  }
  const std::vector<std::byte> encoded = Encode(own);
  for (int other = 0; other < group_->size(); ++other) {
    Member& member = members_[static_cast<size_t>(other)];
    if (other == group_->rank) {
      member.arrived = true;
      member.announcement = own;
      continue;
    }
    member.arrived = false;
    member.buffer.resize(LargestAnnouncement(group_->size(), kSmallBytes));
    member.request = rank_->transport().Receive(AddressOf(other, Transport::Channel::kAnnouncement),
                                                member.buffer.data(),
                                                static_cast<int64_t>(member.buffer.size()));
    rank_->transport().Post(AddressOf(other, Transport::Channel::kAnnouncement), encoded);
  }
}

bool CollectiveQueue::AllArrived() {
  bool all = true;
  for (size_t other = 0; other < members_.size(); ++other) {
    Member& member = members_[other];
    if (member.arrived) continue;
    if (!member.request.Done()) {
      all = false;
      continue;
    }
    auto announcement = Decode({member.buffer.data(), static_cast<size_t>(member.request.bytes())});
    const int rank = group_->members[other];
    if (!announcement.ok()) {
      rank_->FailCall(Annotate(announcement.status(), absl::StrCat("from rank ", rank)));
      return false;
    }
    CHECK_EQ(announcement->sequence, calls_.front()->sequence());
    rank_->Heard(rank, group_, announcement->signature.operation, announcement->sequence);
    member.announcement = *std::move(announcement);
    member.arrived = true;
  }
  return all;
}

void CollectiveQueue::FailIfMembersLeft(const Collective& head) {
  std::vector<int> gone;
  for (const int rank : Ranks(/*arrived=*/false)) {
    if (rank_->HasLeft(rank)) gone.push_back(rank);
  }
  if (gone.empty()) return;
  rank_->FailCall(absl::AbortedError(absl::StrCat(
      RanksText(gone), gone.size() == 1 ? " has" : " have", " left and will not come to ",
      head.Describe(), ", which ", RanksText(Ranks(/*arrived=*/true)), " called")));
}

bool CollectiveQueue::Agree(const Collective& head) {
  std::vector<std::string> calls;
  bool agree = true;
  for (const Member& member : members_) {
    const Announcement& announcement = member.announcement;
    agree = agree && announcement.signature == head.signature();
    calls.push_back(DescribeCall(announcement.signature, announcement.label));
  }
  if (agree) return true;
  rank_->FailCall(absl::FailedPreconditionError(
      absl::StrCat("ranks disagree on call #", head.sequence(), " of ", group_->ToString(), ": ",
                   CallersText(calls, group_->members),
                   ". All members of a group must make the same calls in the same order")));
  return false;
}

void CollectiveQueue::TakeOutput(const Collective& head) {
  std::vector<MemberBuffers> buffers;
  for (const Member& member : members_) {
    buffers.push_back({.input = member.announcement.data.data(), .output = nullptr});
  }
  buffers[static_cast<size_t>(group_->rank)].output = head.buffers().output;
  lockstep::TakeOutput(head.signature(), buffers, group_->rank);
}

bool CollectiveQueue::Exchanged() {
  const bool sent = AllDone(sends_);
  return AllDone(receives_) && sent;
}

void CollectiveQueue::StartExchange() {
  sends_.clear();
  receives_.clear();
  // Receives first: what finds them waiting goes straight to its place.
  for (const PeerBuffer& buffer : exchange_.receives) {
    receives_.push_back(rank_->transport().Receive(
        AddressOf(buffer.member, Transport::Channel::kData), buffer.at, buffer.bytes));
  }
  for (const PeerBuffer& buffer : exchange_.sends) {
    sends_.push_back(rank_->transport().Send(AddressOf(buffer.member, Transport::Channel::kData),
                                             buffer.at, buffer.bytes));
  }
}

void CollectiveQueue::EndHead(const absl::Status& status) {
  calls_.front()->End(status);
  calls_.pop_front();
  phase_ = Phase::kQueued;
  movement_.reset();
  sends_.clear();
  receives_.clear();
}

void CollectiveQueue::EndAll() {
  // Somebody who does not answer may still read what it was sent.
  if (rank_->MayEnd() == RankState::End::kGivenUp) (void)movement_.release();
  for (const auto& call : calls_) call->EndFailed();
  calls_.clear();
  phase_ = Phase::kQueued;
  movement_.reset();
}

std::vector<int> CollectiveQueue::Ranks(bool arrived) const {
  std::vector<int> ranks;
  for (size_t member = 0; member < members_.size(); ++member) {
    if (members_[member].arrived == arrived) ranks.push_back(group_->members[member]);
  }
  return ranks;
}

Transport::Address CollectiveQueue::AddressOf(int member, Transport::Channel channel) const {
  return rank_->Address(group_->members[static_cast<size_t>(member)], context_, channel);
}

}  // namespace lockstep::mpi
