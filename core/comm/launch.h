// Runs ranks as threads of this process.

#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "core/comm/communicator.h"
#include "core/comm/ledger.h"
#include "core/comm/local/local_world.h"

namespace lockstep {

// What a rank is given to work with, whatever started it.
class RankHandle {
 public:
  RankHandle(std::unique_ptr<Ledger> ledger, std::unique_ptr<Communicator> comm)
      : ledger_(std::move(ledger)), comm_(std::move(comm)) {}

  int rank() const { return comm_->rank(); }
  int size() const { return comm_->size(); }
  Communicator& comm() { return *comm_; }  // of all ranks
  Ledger& ledger() { return *ledger_; }

 private:
  std::unique_ptr<Ledger> ledger_;
  std::unique_ptr<Communicator> comm_;  // first to go
};

using RankFunction = std::function<absl::Status(RankHandle&)>;

// Calls `run` once for each rank, each in a thread of its own (a single rank in the calling one),
// and returns when all have returned. A rank that returns an error or throws a std::exception
// aborts the world, which ends the waits of the others. Returns OK if all ranks did, else the first
// cause: that of the rank that failed first, preceded by "rank 2: " where there are several, or
// what went wrong between them.
//
//   return RunRanks(4, {.timeout = options.timeout}, [&](RankHandle& handle) {
//     return Train(handle, config);
//   });
absl::Status RunRanks(int ranks, const LocalWorldOptions& options, const RankFunction& run);

}  // namespace lockstep
