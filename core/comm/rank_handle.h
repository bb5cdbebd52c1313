#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "core/comm/communicator.h"
#include "core/comm/ledger.h"

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

// What a rank does.
using RankFunction = std::function<absl::Status(RankHandle&)>;

}  // namespace lockstep
