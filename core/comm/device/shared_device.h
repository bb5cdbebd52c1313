// Ranks that are threads of one process and share one device.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/device/comm_device.h"
#include "core/comm/device/round_board.h"

namespace lockstep {

using DeviceStreamFactory = std::function<std::unique_ptr<DeviceStream>()>;

// Routes over a board. The first member of a group queues the movement of a collective, and the
// receiver that of a message: straight from memory to memory, reductions along the tree over the
// ranks. Each carrier has a stream of its own.
class SharedDeviceRoutes final : public DeviceRoutes {
 public:
  SharedDeviceRoutes(std::shared_ptr<RoundBoard> board, int size, int rank,
                     DeviceStreamFactory make_stream);

  std::unique_ptr<DeviceCarrier> Collectives() override;
  std::unique_ptr<DeviceCarrier> Messages(Direction direction, int member) override;

 private:
  const std::shared_ptr<RoundBoard> board_;
  const int size_;
  const int rank_;
  const DeviceStreamFactory make_stream_;
};

// Finds the boards of the groups that a rank becomes a member of.
class SharedDeviceConnector {
 public:
  explicit SharedDeviceConnector(std::shared_ptr<RoundBoards> boards)
      : boards_(std::move(boards)) {}

  std::unique_ptr<DeviceRoutes> Connect(const GroupInfo& group, DeviceStreamFactory make_stream);

 private:
  const std::shared_ptr<RoundBoards> boards_;
  // Groups so far, by their members and name.
  std::map<std::pair<std::vector<int>, std::string>, int> groups_;
};

}  // namespace lockstep
