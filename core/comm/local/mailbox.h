#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "core/comm/local/transfer.h"

namespace lockstep {

// Where messages to one member of a group are matched: the first send from a member meets the first
// recv from it, and so on, whichever of the two comes first.
class Mailbox {
 public:
  struct Posted {
    std::shared_ptr<Transfer> transfer;
    bool matched;  // the other side was there already
  };

  // Calls for a message from member `from`; the side is a send or a recv by its signature.
  Posted Post(int from, Transfer::Side side);

 private:
  // Messages of which one side is missing; the same side of all of them.
  using Waiting = std::vector<std::shared_ptr<Transfer>>;

  std::mutex mutex_;
  std::vector<Waiting> waiting_;  // by sender; only as long as needed so far
};

}  // namespace lockstep
