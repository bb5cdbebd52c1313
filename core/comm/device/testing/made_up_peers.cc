#include "core/comm/device/testing/made_up_peers.h"

#include <cstddef>
#include <cstring>  // std::memcpy
#include <string>
#include <vector>

#include "glog/logging.h"

namespace lockstep {
namespace {

class MailPeers final : public DevicePeers {
 public:
  MailPeers(Mail& mail, std::pair<std::string, int> group, int rank, MadeUpStream& stream)
      : mail_(mail), group_(std::move(group)), rank_(rank), stream_(stream) {}

  void Exchange(absl::Span<const PeerMessage> messages) override {
    stream_.Queue([this, all = std::vector<PeerMessage>(messages.begin(), messages.end())] {
      for (const PeerMessage& message : all) {
        if (message.send_bytes == 0) continue;
        Bytes bytes(static_cast<size_t>(message.send_bytes));
        std::memcpy(bytes.data(), message.send, bytes.size());
        mail_.Post({group_, {rank_, message.member}}, std::move(bytes));
      }
      for (const PeerMessage& message : all) {
        if (message.receive_bytes == 0) continue;
        const Bytes bytes = mail_.Take({group_, {message.member, rank_}});
        CHECK_EQ(static_cast<int64_t>(bytes.size()), message.receive_bytes);
        std::memcpy(message.receive, bytes.data(), bytes.size());
      }
    });
  }

 private:
  Mail& mail_;
  const std::pair<std::string, int> group_;
  const int rank_;
  MadeUpStream& stream_;
};

// A collective that moves elements as they are, as one member's messages.
std::vector<PeerMessage> MessagesOf(const Call& call, const DeviceMember& member) {
  const Signature& signature = call.signature;
  const bool is_root = member.rank == signature.root;
  const auto at = [&](const Tensor& whole, int of) {
    return whole.raw() + ChunkOf(signature, member.size, of).begin * SizeOf(signature.dtype);
  };
  const auto bytes = [&](int of) {
    return ChunkOf(signature, member.size, of).count * SizeOf(signature.dtype);
  };
  std::vector<PeerMessage> messages;
  for (int other = 0; other < member.size; ++other) {
    PeerMessage message = {.member = other};
    const auto send = [&](const std::byte* from, int64_t count) {
      message.send = from;
      message.send_bytes = count;
    };
    const auto receive = [&](std::byte* to, int64_t count) {
      message.receive = to;
      message.receive_bytes = count;
    };
    switch (signature.operation) {
      case Operation::kBroadcast:
        if (is_root) send(call.input.raw(), PayloadBytes(signature));
        if (other == signature.root) receive(call.output.raw(), PayloadBytes(signature));
        break;
      case Operation::kAllGather:
        if (bytes(member.rank) > 0) send(call.input.raw(), bytes(member.rank));
        receive(at(call.output, other), bytes(other));
        break;
      case Operation::kGather:
        if (other == signature.root && bytes(member.rank) > 0) {
          send(call.input.raw(), bytes(member.rank));
        }
        if (is_root) receive(at(call.output, other), bytes(other));
        break;
      case Operation::kScatter:
        if (is_root) send(at(call.input, other), bytes(other));
        if (other == signature.root && bytes(member.rank) > 0) {
          receive(call.output.raw(), bytes(member.rank));
        }
        break;
      case Operation::kAllToAll:
        send(at(call.input, other), bytes(other));
        receive(at(call.output, other), bytes(other));
        break;
      default:
        LOG(FATAL) << Name(signature.operation) << " moves nothing";
    }
    messages.push_back(message);
  }
  return messages;
}

class PeerCarrier final : public DeviceCarrier {
 public:
  PeerCarrier(std::shared_ptr<Mail> mail, std::pair<std::string, int> group,
              const DeviceMember& member)
      : mail_(std::move(mail)),
        member_(member),
        peers_(*mail_, std::move(group), member.rank, stream_) {}

  int64_t HeldBytes(const Signature& signature) const override {
    return ExactReductionBytes(signature, member_);
  }
  void Begin(const DeviceCall&) override {}
  DeviceMarkPtr Move(const DeviceCall& call) override {
    stream_.Await(*call.ready);
    if (IsReduction(call.call.signature.operation)) {
      QueueExactReduction(call.call, member_, call.held ? call.held->raw() : nullptr, stream_,
                          peers_);
    } else if (call.call.signature.count > 0) {
      peers_.Exchange(MessagesOf(call.call, member_));
    }
    return stream_.Mark();
  }
  DeviceMarkPtr GiveUp(const DeviceCall&) override { return stream_.Mark(); }

 private:
  const std::shared_ptr<Mail> mail_;
  const DeviceMember member_;
  MailPeers peers_;
  MadeUpStream stream_;  // goes first: what it has yet to do needs the peers
};

class PeerRoutes final : public DeviceRoutes {
 public:
  PeerRoutes(std::unique_ptr<DeviceRoutes> others, std::shared_ptr<Mail> mail,
             std::pair<std::string, int> group, const DeviceMember& member)
      : others_(std::move(others)),
        mail_(std::move(mail)),
        group_(std::move(group)),
        member_(member) {}

  std::unique_ptr<DeviceCarrier> Collectives() override {
    return std::make_unique<PeerCarrier>(mail_, group_, member_);
  }
  std::unique_ptr<DeviceCarrier> Messages(Direction direction, int member) override {
    return others_->Messages(direction, member);
  }

 private:
  const std::unique_ptr<DeviceRoutes> others_;
  const std::shared_ptr<Mail> mail_;
  const std::pair<std::string, int> group_;
  const DeviceMember member_;
};

}  // namespace

void Mail::Post(const Route& route, Bytes bytes) {
  {
    std::lock_guard lock(mutex_);
    messages_[route].push_back(std::move(bytes));
  }
  posted_.notify_all();
}

Bytes Mail::Take(const Route& route) {
  std::unique_lock lock(mutex_);
  std::deque<Bytes>& messages = messages_[route];
  posted_.wait(lock, [&] { return !messages.empty(); });
  Bytes bytes = std::move(messages.front());
  messages.pop_front();
  return bytes;
}

absl::StatusOr<std::unique_ptr<DeviceRoutes>> MadeUpPeerDevice::Connect(Communicator& group) {
  const std::string name = group.group().ToString();
  return std::make_unique<PeerRoutes>(
      connector_.Connect(group.group(), [] { return std::make_unique<MadeUpStream>(); }), mail_,
      std::pair(name, groups_[name]++),
      DeviceMember{.size = group.size(), .rank = group.rank(), .ranks_a_node = ranks_a_node_});
}

}  // namespace lockstep
