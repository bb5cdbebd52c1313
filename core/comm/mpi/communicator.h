#pragma once

#include <memory>
#include <utility>

#include "core/comm/communicator.h"
#include "core/comm/mpi/collective_queue.h"
#include "core/comm/mpi/message_queue.h"
#include "core/comm/mpi/rank_state.h"

namespace lockstep::mpi {

// A membership in a group of ranks that are processes under MPI, for tensors in host memory;
// reductions follow the tree over the ranks.
class MpiCommunicator final : public Communicator {
 public:
  // Makes the communicator of all ranks of the world.
  explicit MpiCommunicator(std::shared_ptr<RankState> rank);

  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key,
                                                      absl::string_view name) override;
  void Abort(const absl::Status& cause) override;
  absl::Status status() const override;

 private:
  MpiCommunicator(std::shared_ptr<RankState> rank, std::shared_ptr<const GroupInfo> group,
                  int context);

  Work Start(Call call) override;
  void GiveUp(absl::string_view call) override;

  const std::shared_ptr<RankState> rank_;
  const std::shared_ptr<CollectiveQueue> collectives_;
  const std::shared_ptr<MessageQueue> messages_;
};

}  // namespace lockstep::mpi
