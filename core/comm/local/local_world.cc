#include "core/comm/local/local_world.h"

#include <chrono>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/comm/local/local_communicator.h"
#include "core/comm/local/world_state.h"
#include "glog/logging.h"

namespace lockstep {

LocalWorld::LocalWorld(int size, const LocalWorldOptions& options)
    : state_(std::make_shared<WorldState>(size, absl::ToChronoNanoseconds(options.timeout))) {}

LocalWorld::~LocalWorld() = default;

int LocalWorld::size() const { return state_->size(); }

std::unique_ptr<Communicator> LocalWorld::Join(int rank, Ledger& ledger) {
  CHECK_EQ(ledger.rank(), rank);
  return LocalCommunicator::OfWorld(state_, ledger);
}

void LocalWorld::Abort(int rank, const absl::Status& cause) { state_->FailRank(rank, cause); }

absl::Status LocalWorld::status() const { return state_->status(); }

std::optional<int> LocalWorld::failed_rank() const { return state_->failed_rank(); }

}  // namespace lockstep
