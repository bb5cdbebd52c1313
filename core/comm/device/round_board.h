#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/comm/collective_task.h"
#include "core/comm/device/device_stream.h"
#include "core/comm/group_info.h"

namespace lockstep {

// One call where threads of a process have their memory on one device: what each member has, and
// what one of them, the leader, queues for all.
//
// Members offer what they have before anybody can know that they have made the call. When all have,
// the leader claims it, queues the movement and publishes its end. A member whose call fails
// withdraws, so that nothing is queued later; or waits for the publication, if it was claimed.
class Round {
 public:
  struct Offer {
    MemberBuffers buffers;
    DeviceMarkPtr ready;
  };
  // The place behind which nobody touches the members' memory, null if nobody ever did; and why the
  // leader could not queue the whole movement.
  struct End {
    DeviceMarkPtr mark;
    absl::Status status;
  };

  explicit Round(int members) : offers_(static_cast<size_t>(members)) {}

  void Put(int member, Offer offer);

  // For the leader, when all have put: what they have; null if one has withdrawn.
  const std::vector<Offer>* Claim();
  void Publish(End end);

  // Waits for that. Without a mark if somebody has withdrawn.
  End AwaitEnd();
  // As AwaitEnd if it has been claimed; else nobody claims it any more, and there is no mark.
  End Withdraw();

 private:
  enum class State { kOpen, kClaimed, kOver };

  std::mutex mutex_;
  std::condition_variable over_;
  State state_ = State::kOpen;
  std::vector<Offer> offers_;
  End end_;
};

// The rounds of one group that are under way, for its members to find.
class RoundBoard {
 public:
  // The two members of a message; both -1 for collectives.
  struct Pair {
    int from = -1, to = -1;
    friend auto operator<=>(const Pair&, const Pair&) = default;
  };

  // Round `number` of those; each of its `members` asks once.
  std::shared_ptr<Round> Find(Pair pair, int64_t number, int members);

 private:
  struct Entry {
    std::shared_ptr<Round> round;
    int asked = 0;
  };

  std::mutex mutex_;
  std::map<std::pair<Pair, int64_t>, Entry> rounds_;
};

// The boards of all groups of the ranks that are threads of this process.
class RoundBoards {
 public:
  // The board of a group that has been made after `earlier` others of the same members and name;
  // the same object for all members. It goes with the last of them.
  std::shared_ptr<RoundBoard> Find(const GroupInfo& group, int earlier);

 private:
  std::mutex mutex_;
  std::map<std::tuple<std::vector<int>, std::string, int>, std::weak_ptr<RoundBoard>> boards_;
};

}  // namespace lockstep
