#include <memory>

#include "core/comm/conformance/suite.h"
#include "core/comm/device/device_communicator.h"
#include "core/comm/device/testing/made_up_device.h"
#include "core/comm/device/testing/made_up_peers.h"
#include "core/comm/launch.h"

namespace lockstep {
namespace {

// Every rank has a thread to compute, one for each call queue, and one for each stream: 4 of them
// show what 8 would.
class SharedDeviceBackend final : public BackendUnderTest {
 public:
  int max_ranks() const override { return 4; }
  absl::Status Run(int ranks, absl::Duration timeout, const RankBody& body) override {
    const auto boards = std::make_shared<RoundBoards>();
    return RunRanks(ranks, {.timeout = timeout}, [&](RankHandle& handle) -> absl::Status {
      MadeUpDevice device(boards);
      MadeUpMemory memory(device.computes());
      auto comm = DeviceCommunicator::Create(handle.comm(), device);
      if (!comm.ok()) return comm.status();
      RankUnderTest rank(**comm, memory);
      return body(rank);
    });
  }
};

// Devices that exchange messages, and add up what they get: nodes of so many ranks.
template <int kRanksANode>
class ExactReductionBackend final : public BackendUnderTest {
 public:
  int max_ranks() const override { return 4; }
  absl::Status Run(int ranks, absl::Duration timeout, const RankBody& body) override {
    const auto boards = std::make_shared<RoundBoards>();
    const auto mail = std::make_shared<Mail>();
    return RunRanks(ranks, {.timeout = timeout}, [&](RankHandle& handle) -> absl::Status {
      MadeUpPeerDevice device(boards, mail, kRanksANode);
      MadeUpMemory memory(device.computes());
      auto comm = DeviceCommunicator::Create(handle.comm(), device);
      if (!comm.ok()) return comm.status();
      RankUnderTest rank(**comm, memory);
      return body(rank);
    });
  }
};

template <typename Backend>
std::unique_ptr<BackendUnderTest> MakeBackend() {
  return std::make_unique<Backend>();
}

INSTANTIATE_TEST_SUITE_P(SharedDevice, CommConformance,
                         testing::Values(&MakeBackend<SharedDeviceBackend>));
INSTANTIATE_TEST_SUITE_P(ExactReductionsInANode, CommConformance,
                         testing::Values(&MakeBackend<ExactReductionBackend<4>>));
INSTANTIATE_TEST_SUITE_P(ExactReductionsInNodesOfTwo, CommConformance,
                         testing::Values(&MakeBackend<ExactReductionBackend<2>>));

}  // namespace
}  // namespace lockstep
