// The backend whose ranks are threads of one process.

#pragma once

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/comm/communicator.h"
#include "core/comm/ledger.h"

namespace lockstep {

class WorldState;

struct LocalWorldOptions {
  // How long a rank waits for its peers in one call before it gives up for all of them.
  absl::Duration timeout = absl::Seconds(60);
};

// A world of ranks that are threads of this process. Data goes straight from a rank's memory to the
// peers', by each member running its task: an all-reduce reads every input once and writes every
// output once, which is the least that memory can be asked for. Small calls take one meeting.
//
//   LocalWorld world(2);
//   std::thread peer([&] {
//     Ledger ledger(1);
//     std::unique_ptr<Communicator> comm = world.Join(1, ledger);
//     ...
//   });
//
// core/comm/launch.h starts the threads and reports their errors.
//
// Threads: a rank's thread carries its calls itself while it waits for them; otherwise a worker
// thread of the rank does, which sleeps unless needed. Waiting polls for 30 us if the machine has a
// core for each rank, and then sleeps.
//
// A failure (a rank that aborts, drops a work or leaves; a timeout; calls that differ) is one for
// the whole world: all its waits end with the first cause. Communicators keep what they need alive;
// the world itself may go first.
class LocalWorld {
 public:
  // Requires size >= 1.
  explicit LocalWorld(int size, const LocalWorldOptions& options = {});
  ~LocalWorld();
  LocalWorld(const LocalWorld&) = delete;
  LocalWorld& operator=(const LocalWorld&) = delete;

  int size() const;

  // A rank's membership in the group of all ranks, called "world"; once per rank. Any thread that
  // then calls into it is the rank's. When it is destroyed, the rank leaves: calls of others that
  // would need it, in any group, fail at once. The ledger outlives the communicator.
  std::unique_ptr<Communicator> Join(int rank, Ledger& ledger);

  // As Communicator::Abort, for a rank that may not even have joined.
  void Abort(int rank, const absl::Status& cause);

  // OK, or why the world has failed, with every rank's last call.
  absl::Status status() const;
  // The rank that failed first; none if nothing failed, or no single rank did (a timeout, calls
  // that differ).
  std::optional<int> failed_rank() const;

 private:
  const std::shared_ptr<WorldState> state_;
};

}  // namespace lockstep
