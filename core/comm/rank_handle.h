#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
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

struct LaunchOptions {
  // How long a rank waits for its peers in one call before it gives up for all of them.
  absl::Duration timeout = absl::Seconds(60);
  // The folder for a post-mortem of each rank's ledger, asked for when a run of several ranks has
  // failed, and made then, if need be. Empty, or no function: none is written.
  std::function<std::string()> post_mortem{};
};

// Calls `run`; what it throws, if it is a std::exception, becomes its status.
absl::Status RunCatching(const RankFunction& run, RankHandle& handle);

// Writes rank<r>.txt and .json into the folder for post-mortems: why the run has failed, as this
// rank knows it, and its ledger; no .json where memory has run out. What cannot be written is
// let be. Never throws.
void WritePostMortem(const LaunchOptions& options, const Ledger& ledger,
                     const absl::Status& failure);

}  // namespace lockstep
