#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "core/comm/call.h"
#include "core/comm/local/rank_engine.h"
#include "core/comm/local/transfer.h"

namespace lockstep {

// Where messages to one member of a group are matched: the first send from a member meets the first
// recv from it, and so on, whichever of the two comes first.
class Mailbox {
 public:
  enum class Meeting {
    kFirst,     // the other side is still to come
    kMatched,   // it was there already
    kDisagree,  // it was, but means a message of another size or dtype
  };
  struct Posted {
    std::shared_ptr<Transfer> transfer;
    Meeting meeting;
  };

  // Calls, a send or a recv, for a message from member `from`. `engine` is the caller's.
  Posted Post(int from, const Call& call, RankEngine& engine);

 private:
  // Messages of which one side is missing; the same side of all of them.
  using Waiting = std::vector<std::shared_ptr<Transfer>>;

  std::mutex mutex_;
  std::vector<Waiting> waiting_;  // by sender; only as long as needed so far
};

}  // namespace lockstep
