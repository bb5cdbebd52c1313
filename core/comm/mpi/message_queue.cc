#include "core/comm/mpi/message_queue.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/comm/mpi/call_state.h"

namespace lockstep::mpi {
namespace {

bool IsSmall(const Signature& signature) { return HostBytes(signature) <= kSmallBytes; }

}  // namespace

class MessageQueue::Message final : public CallState {
 public:
  Message(std::shared_ptr<RankState> rank, std::shared_ptr<MessageQueue> queue, Call call,
          int64_t sequence)
      : CallState(rank, queue->group_, queue, std::move(call), sequence),
        rank_(rank->rank()),
        peer_(queue->group_->members[static_cast<size_t>(member())]) {}

  const Signature& signature() const { return call().signature; }
  bool sends() const { return signature().operation == Operation::kSend; }
  int member() const { return signature().root; }  // the other one
  int peer() const { return peer_; }               // its rank in the world

  std::string DescribePeerLeft() const {
    return absl::StrCat("rank ", peer_, " has left and will not come to ", Describe(),
                        ", which rank ", rank_, " called");
  }

 protected:
  std::string DescribeMissing() const override {
    return absl::StrCat("rank ", peer_, " did not come to ", Describe(), ", which rank ", rank_,
                        " called");
  }

 private:
  const int rank_, peer_;
};

MessageQueue::MessageQueue(std::shared_ptr<RankState> rank, std::shared_ptr<const GroupInfo> group,
                           int context)
    : rank_(std::move(rank)),
      group_(std::move(group)),
      context_(context),
      peers_(static_cast<size_t>(group_->size())) {
  RankState::Lock lock(rank_->mutex());
  rank_->Add(this);
}

MessageQueue::~MessageQueue() {
  RankState::Lock lock(rank_->mutex());
  rank_->Remove(this);
}

Work MessageQueue::Issue(Call call) {
  RankState::Lock lock(rank_->mutex());
  Peer& peer = peers_[static_cast<size_t>(call.signature.root)];
  const bool sends = call.signature.operation == Operation::kSend;
  auto message = std::make_shared<Message>(rank_, shared_from_this(), std::move(call),
                                           sends ? peer.sent++ : peer.received++);
  (sends ? peer.sends : peer.receives).push_back(message);
  if (sends && !rank_->failed()) Announce(*message);
  Advance();
  if (!message->over()) rank_->Wake();
  return Work(std::move(message));
}

bool MessageQueue::Busy() const {
  return !moving_.empty() || std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    return !peer.sends.empty() || !peer.receives.empty();
  });
}

void MessageQueue::Advance() {
  if (rank_->failed()) {
    if (rank_->MayEnd() != RankState::End::kNotYet) EndAll();
    return;
  }
  for (int member = 0; member < group_->size() && !rank_->failed(); ++member) {
    AdvanceSends(member);
    AdvanceReceives(member);
  }
  moving_.remove_if([](Moving& moving) {
    if (!moving.request.Done()) return false;
    moving.message->End(absl::OkStatus());
    return true;
  });
}

bool MessageQueue::Settle() {
  bool settled = true;
  for (Peer& peer : peers_) {
    settled = peer.answered.GiveUp() && settled;
    settled = peer.announced.GiveUp() && settled;
  }
  for (Moving& moving : moving_) {
    if (!moving.message->sends()) settled = moving.request.GiveUp() && settled;
  }
  return settled;
}

void MessageQueue::Announce(const Message& send) {
  Announcement announcement = {
      .sequence = send.sequence(), .signature = send.signature(), .label = send.call().label};
  if (IsSmall(send.signature())) {
    const std::byte* from = MemoryOf(send.call().input);
    announcement.data.assign(from, from + HostBytes(send.signature()));
  }
  rank_->transport().Post(AddressOf(send.member(), Transport::Channel::kMessage),
                          Encode(announcement));
}

void MessageQueue::AdvanceSends(int member) {
  Peer& peer = peers_[static_cast<size_t>(member)];
  while (!peer.sends.empty()) {
    if (!peer.awaits_answer) {
      peer.answered = rank_->transport().Receive(AddressOf(member, Transport::Channel::kTaken),
                                                 &peer.answer, 1);
      peer.awaits_answer = true;
    }
    const std::shared_ptr<Message> head = peer.sends.front();
    if (!peer.answered.Done()) {
      if (rank_->HasLeft(head->peer())) {
        rank_->FailCall(absl::AbortedError(head->DescribePeerLeft()));
      }
      return;
    }
    peer.awaits_answer = false;
    peer.sends.pop_front();
    if (IsSmall(head->signature())) {
      head->End(absl::OkStatus());
      continue;
    }
    moving_.push_back({head, rank_->transport().Send(
                                 AddressOf(member, Transport::Channel::kMessageData),
                                 MemoryOf(head->call().input), PayloadBytes(head->signature()))});
  }
}

void MessageQueue::AdvanceReceives(int member) {
  Peer& peer = peers_[static_cast<size_t>(member)];
  while (!peer.receives.empty() && !rank_->failed()) {
    if (!peer.awaits_announcement) {
      peer.buffer.resize(LargestAnnouncement(0, kSmallBytes));
      peer.announced =
          rank_->transport().Receive(AddressOf(member, Transport::Channel::kMessage),
                                     peer.buffer.data(), static_cast<int64_t>(peer.buffer.size()));
      peer.awaits_announcement = true;
    }
    if (!peer.announced.Done()) {
      const Message& head = *peer.receives.front();
      if (rank_->HasLeft(head.peer())) {
        rank_->FailCall(absl::AbortedError(head.DescribePeerLeft()));
      }
      return;
    }
    peer.awaits_announcement = false;
    const auto announcement =
        Decode({peer.buffer.data(), static_cast<size_t>(peer.announced.bytes())});
    const int rank = group_->members[static_cast<size_t>(member)];
    if (!announcement.ok()) {
      return rank_->FailCall(Annotate(announcement.status(), absl::StrCat("from rank ", rank)));
    }
    rank_->Heard(rank, group_, Operation::kSend, announcement->sequence);
    Take(member, *announcement);
  }
}

void MessageQueue::Take(int member, const Announcement& announcement) {
  Peer& peer = peers_[static_cast<size_t>(member)];
  const std::shared_ptr<Message> head = peer.receives.front();
  const Signature& own = head->signature();
  const Signature& theirs = announcement.signature;
  if (theirs.dtype != own.dtype || theirs.count != own.count || theirs.memory != own.memory) {
    return rank_->FailCall(absl::FailedPreconditionError(
        absl::StrCat("ranks disagree on message #", head->sequence(), " from rank ", head->peer(),
                     " to rank ", rank_->rank(), " of ", group_->ToString(), ": rank ",
                     head->peer(), " called ", DescribeCall(theirs, announcement.label), ", rank ",
                     rank_->rank(), " called ", DescribeCall(own, head->call().label),
                     ". Messages are received in the order in which they are sent")));
  }
  peer.receives.pop_front();
  std::byte* to = MemoryOf(head->call().output);
  if (IsSmall(own)) {
    if (!announcement.data.empty()) {
      std::memcpy(to, announcement.data.data(), announcement.data.size());
    }
    head->End(absl::OkStatus());
  } else {
    moving_.push_back(
        {head, rank_->transport().Receive(AddressOf(member, Transport::Channel::kMessageData), to,
                                          PayloadBytes(own))});
  }
  rank_->transport().Post(AddressOf(member, Transport::Channel::kTaken), {std::byte{1}});
}

void MessageQueue::EndAll() {
  for (Peer& peer : peers_) {
    for (Messages* messages : {&peer.sends, &peer.receives}) {
      for (const auto& message : *messages) message->EndFailed();
      messages->clear();
    }
  }
  for (const Moving& moving : moving_) moving.message->EndFailed();
  moving_.clear();
}

Transport::Address MessageQueue::AddressOf(int member, Transport::Channel channel) const {
  return rank_->Address(group_->members[static_cast<size_t>(member)], context_, channel);
}

}  // namespace lockstep::mpi
