#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "core/comm/call.h"
#include "core/comm/group_info.h"
#include "core/comm/mpi/announcement.h"
#include "core/comm/mpi/rank_state.h"
#include "core/comm/mpi/transport.h"
#include "core/comm/work.h"

namespace lockstep::mpi {

// The messages that this rank sends and receives in one group. A send is announced at once, small
// ones with their data; the receiver compares it with its own call, and answers that it has taken
// it. Only then does large data travel: whoever sends it knows that memory waits for it.
class MessageQueue final : public InFlight, public std::enable_shared_from_this<MessageQueue> {
 public:
  MessageQueue(std::shared_ptr<RankState> rank, std::shared_ptr<const GroupInfo> group,
               int context);
  ~MessageQueue() override;

  Work Issue(Call call);

  void Advance() override;
  bool Busy() const override;
  bool MovesData() const override { return !moving_.empty(); }
  bool Settle() override;

 private:
  class Message;
  using Messages = std::deque<std::shared_ptr<Message>>;

  // Messages to and from one member, in order.
  struct Peer {
    Messages sends{};                // that have not been taken
    Messages receives{};             // that nothing has arrived for
    int64_t sent = 0, received = 0;  // so far
    bool awaits_answer = false;      // to the first of `sends`
    std::byte answer{};
    Transport::Request answered{};
    bool awaits_announcement = false;  // for the first of `receives`
    std::vector<std::byte> buffer{};
    Transport::Request announced{};
  };
  // A message whose data is on its way.
  struct Moving {
    std::shared_ptr<Message> message;
    Transport::Request request;
  };

  void Announce(const Message& send);
  void AdvanceSends(int member);
  void AdvanceReceives(int member);
  void Take(int member, const Announcement& announcement);
  void EndAll();
  Transport::Address AddressOf(int member, Transport::Channel channel) const;

  const std::shared_ptr<RankState> rank_;
  const std::shared_ptr<const GroupInfo> group_;
  const int context_;
  std::vector<Peer> peers_;
  std::list<Moving> moving_;
};

}  // namespace lockstep::mpi
