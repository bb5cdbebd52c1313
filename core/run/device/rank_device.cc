#include "core/run/device/rank_device.h"

#include "core/kernels/cpu/cpu_kernels.h"
#include "core/run/device/cuda_rank_device.h"

namespace lockstep {
namespace {

class CpuRankDevice final : public RankDevice {
 public:
  CpuRankDevice(Communicator& world, InstructionSet instructions)
      : world_(world), kernels_(allocator_, instructions) {}

  Kernels& kernels() override { return kernels_; }
  Communicator& world() override { return world_; }

 private:
  Communicator& world_;
  CpuAllocator allocator_;
  CpuKernels kernels_;
};

class CpuRankDevices final : public RankDevices {
 public:
  explicit CpuRankDevices(InstructionSet instructions) : instructions_(instructions) {}

  absl::StatusOr<std::unique_ptr<RankDevice>> Make(Communicator& world, const Options&) override {
    return std::make_unique<CpuRankDevice>(world, instructions_);
  }

 private:
  InstructionSet instructions_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<RankDevices>> RankDevices::Create(DeviceType type,
                                                                 const RanksHere& ranks,
                                                                 InstructionSet instructions) {
  if (type == DeviceType::kCuda) return CreateCudaRankDevices(ranks);
  if (!CpuKernels::LimitLibraries(instructions)) {
    return absl::FailedPreconditionError(
        "run.instructions must be chosen before this process computes: oneDNN already uses wider "
        "instructions than AVX2");
  }
  return std::make_shared<CpuRankDevices>(instructions);
}

}  // namespace lockstep
