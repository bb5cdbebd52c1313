#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/comm/conformance/suite.h"
#include "core/comm/cuda/gpu_memory.h"
#include "core/comm/device/device_communicator.h"
#include "core/comm/launch.h"
#include "core/comm/nccl/device.h"
#include "core/cuda/context.h"
#include "core/cuda/device.h"

namespace lockstep {
namespace {

// How many ranks there are; 0, with what is missing, where NCCL has nobody to talk to.
int Ranks() {
  const absl::StatusOr<int> gpus = cuda::CountDevices();
  if (!gpus.ok()) {
    ADD_FAILURE() << gpus.status().message();
    return 0;
  }
  if (*gpus < 2) {
    ADD_FAILURE() << "NCCL needs a GPU for each rank, and this test two or more: this machine has "
                  << *gpus;
    return 0;
  }
  return std::min(*gpus, 8);
}

// How messages travel: as between processes, or as between threads.
enum class Messages { kOverNccl, kByCopies };

template <NcclReductions kReductions, Messages kMessages>
class NcclBackend final : public BackendUnderTest {
 public:
  int max_ranks() const override { return ranks_; }
  int own_calls() const override { return 1; }  // the split for names of NCCL's communicators
  // Behind it the communicator's name goes to all members; where sums are exact, nodes do before.
  std::string last_own_call() const override {
    return kReductions == NcclReductions::kExact ? "broadcast #1" : "broadcast #0";
  }
  absl::Status Run(int ranks, absl::Duration timeout, const RankBody& body) override {
    const auto boards =
        kMessages == Messages::kByCopies ? std::make_shared<RoundBoards>() : nullptr;
    return RunRanks(ranks, {.timeout = timeout}, [&](RankHandle& handle) -> absl::Status {
      LS_ASSIGN_OR_RETURN(const std::unique_ptr<CudaContext> context,
                          CudaContext::Create(handle.rank()));
      GpuMemory memory(*context);
      NcclGpu device(*context, absl::ToChronoNanoseconds(timeout), kReductions, handle.comm(),
                     boards);
      LS_ASSIGN_OR_RETURN(const auto comm, DeviceCommunicator::Create(handle.comm(), device));
      constexpr bool kExact = kReductions == NcclReductions::kExact;
      RankUnderTest rank(*comm, memory, kExact ? Arithmetic::kTree : Arithmetic::kAnyOrder);
      return body(rank);
    });
  }

 private:
  const int ranks_ = Ranks();
};

template <NcclReductions kReductions, Messages kMessages>
std::unique_ptr<BackendUnderTest> MakeBackend() {
  return std::make_unique<NcclBackend<kReductions, kMessages>>();
}

INSTANTIATE_TEST_SUITE_P(
    Nccl, CommConformance,
    testing::Values(&MakeBackend<NcclReductions::kFast, Messages::kOverNccl>,
                    &MakeBackend<NcclReductions::kExact, Messages::kOverNccl>,
                    &MakeBackend<NcclReductions::kExact, Messages::kByCopies>));

}  // namespace
}  // namespace lockstep
