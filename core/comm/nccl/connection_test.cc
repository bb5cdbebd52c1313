// When NCCL's communicators are made. The emulated GPUs refuse to make one while a kernel of NCCL
// waits for another rank, where a GPU may hang.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "core/base/status.h"
#include "core/comm/device/device_communicator.h"
#include "core/comm/launch.h"
#include "core/comm/nccl/device.h"
#include "core/cuda/allocator.h"
#include "core/cuda/context.h"
#include "core/cuda/emulation/handles.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

// Lets the emulated GPUs go on as far as they can.
void GoOn(const CudaContext& context) {
  for (int i = 0; i < 200; ++i) {
    emulation::Machine::Get().Poll(emulation::Machine::Get().MarkOf(context.stream()->stream));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Ranks are threads here, which reach each other as processes do: without boards. Stage 1's GPU is
// behind, so the all-reduce of stage 0 waits on its GPU, and then the stages send each other their
// first messages.
TEST(ConnectionTest, StagesSendTheirFirstMessagesWhileAKernelWaits) {
  constexpr int64_t kElements = 1000;
  std::atomic<bool> is_held = true;
  const absl::Status status =
      RunRanks(3, {.timeout = absl::Seconds(20)}, [&](RankHandle& handle) -> absl::Status {
        const int rank = handle.rank(), next = (rank + 1) % 3, previous = (rank + 2) % 3;
        LS_ASSIGN_OR_RETURN(const std::unique_ptr<CudaContext> context, CudaContext::Create(rank));
        CudaAllocator allocator(*context);
        CudaKernels kernels(*context, allocator);
        NcclGpu device(*context, std::chrono::minutes(1), NcclReductions::kFast, handle.comm());
        LS_ASSIGN_OR_RETURN(const auto world, DeviceCommunicator::Create(handle.comm(), device));
        LS_ASSIGN_OR_RETURN(const auto stages, world->Split(0, rank, "stages"));
        LS_RETURN_IF_ERROR(stages->ConnectRoutes({{0, 1}, {1, 0}, {1, 2}, {2, 1}, {2, 0}, {0, 2}}));
        const Tensor sum = kernels.Empty({kElements}), sent = kernels.Empty({kElements});
        const Tensor forward = kernels.Empty({kElements}), backward = kernels.Empty({kElements});
        kernels.Fill(sum, 1);
        kernels.Fill(sent, static_cast<float>(rank));
        if (rank == 1) {
          emulation::QueueOn(context->stream(),
                             {.name = "hold",
                              .run = [] { return std::optional<emulation::Fault>(); },
                              .is_ready = [&is_held] { return !is_held; }});
        }
        Work reduced = world->AllReduce(sum, sum, ReduceOp::kSum, "sum");
        if (rank == 0) GoOn(*context);
        Work works[] = {stages->Send(sent, next, "to the next"),
                        stages->Recv(forward, previous, "from the previous one"),
                        stages->Send(sent, previous, "to the previous one"),
                        stages->Recv(backward, next, "from the next")};
        if (rank == 0) {
          GoOn(*context);
          emulation::Machine::Get().Change([&is_held] { is_held = false; });
        }
        for (Work& work : works) LS_RETURN_IF_ERROR(work.Wait());
        LS_RETURN_IF_ERROR(reduced.Wait());
        std::vector<float> values(kElements);
        for (const auto& [tensor, expected] :
             {std::pair(sum, 3), std::pair(forward, previous), std::pair(backward, next)}) {
          kernels.CopyToHost(tensor, values.data());
          EXPECT_THAT(values, testing::Each(expected)) << rank;
        }
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace lockstep
