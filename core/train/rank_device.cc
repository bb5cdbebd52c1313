#include "core/train/rank_device.h"

#include "core/kernels/cpu/cpu_kernels.h"
#include "core/train/cuda_rank_device.h"

namespace lockstep {
namespace {

class CpuRankDevice final : public RankDevice {
 public:
  explicit CpuRankDevice(Communicator& world) : world_(world) {}

  Kernels& kernels() override { return kernels_; }
  Communicator& world() override { return world_; }

 private:
  Communicator& world_;
  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
};

class CpuRankDevices final : public RankDevices {
 public:
  absl::StatusOr<std::unique_ptr<RankDevice>> Make(Communicator& world, const Options&) override {
    return std::make_unique<CpuRankDevice>(world);
  }
};

}  // namespace

absl::StatusOr<std::shared_ptr<RankDevices>> RankDevices::Create(DeviceType type,
                                                                 const RanksHere& ranks) {
  if (type == DeviceType::kCuda) return CreateCudaRankDevices(ranks);
  return std::make_shared<CpuRankDevices>();
}

}  // namespace lockstep
