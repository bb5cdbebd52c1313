#include <memory>

#include "core/base/status.h"
#include "core/comm/conformance/suite.h"
#include "core/comm/cuda/gpu_device.h"
#include "core/comm/cuda/gpu_memory.h"
#include "core/comm/device/device_communicator.h"
#include "core/comm/launch.h"
#include "core/cuda/context.h"

namespace lockstep {
namespace {

class SharedGpuBackend final : public BackendUnderTest {
 public:
  int max_ranks() const override { return 8; }
  absl::Status Run(int ranks, absl::Duration timeout, const RankBody& body) override {
    const auto boards = std::make_shared<RoundBoards>();
    return RunRanks(ranks, {.timeout = timeout}, [&](RankHandle& handle) -> absl::Status {
      LS_ASSIGN_OR_RETURN(const std::unique_ptr<CudaContext> context, CudaContext::Create(0));
      GpuMemory memory(*context);
      SharedGpu device(*context, boards);
      LS_ASSIGN_OR_RETURN(const auto comm, DeviceCommunicator::Create(handle.comm(), device));
      RankUnderTest rank(*comm, memory);
      return body(rank);
    });
  }
};

std::unique_ptr<BackendUnderTest> MakeBackend() { return std::make_unique<SharedGpuBackend>(); }

INSTANTIATE_TEST_SUITE_P(SharedGpu, CommConformance, testing::Values(&MakeBackend));

}  // namespace
}  // namespace lockstep
