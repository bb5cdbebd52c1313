#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/comm/communicator.h"
#include "core/comm/local/collective_queue.h"
#include "core/comm/local/group.h"
#include "core/comm/local/world_state.h"

namespace lockstep {

// A membership in a group of ranks that are threads of one process (local_world.h).
class LocalCommunicator final : public Communicator {
 public:
  // The rank of `ledger` joins the world and its group of all ranks.
  static std::unique_ptr<LocalCommunicator> OfWorld(std::shared_ptr<WorldState> world,
                                                    Ledger& ledger);
  ~LocalCommunicator() override;

  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key,
                                                      absl::string_view name) override;
  void Abort(const absl::Status& cause) override;
  absl::Status status() const override { return world_->status(); }

 private:
  enum class Kind { kWorld, kSubGroup };

  LocalCommunicator(Kind kind, std::shared_ptr<WorldState> world,
                    std::shared_ptr<LocalGroup> local_group, std::shared_ptr<const GroupInfo> info,
                    Ledger& ledger);

  Work Start(Call call) override;
  void GiveUp(absl::string_view call) override { world_->FailDropped(ledger().rank(), call); }

  const Kind kind_;
  const std::shared_ptr<WorldState> world_;
  const std::shared_ptr<LocalGroup> local_group_;
  const std::shared_ptr<CollectiveQueue> queue_;
  std::vector<int64_t> sent_;  // messages so far, by member
  std::vector<int64_t> received_;
};

}  // namespace lockstep
