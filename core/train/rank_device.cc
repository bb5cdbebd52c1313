#include "core/train/rank_device.h"

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/train/cuda_rank_device.h"

namespace lockstep {
namespace {

class CpuRankDevice final : public RankDevice {
 public:
  Kernels& kernels() override { return kernels_; }

 private:
  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
};

}  // namespace

absl::Status CheckDevice(DeviceType type, int64_t ranks) {
  if (type == DeviceType::kCpu) return absl::OkStatus();
  LS_RETURN_IF_ERROR(CheckCudaDevice());
  if (ranks == 1) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("--device cuda: the mesh has ", ranks,
                   " ranks, and ranks on GPUs cannot communicate yet; run one rank, or use "
                   "--device cpu"));
}

absl::StatusOr<std::unique_ptr<RankDevice>> MakeRankDevice(DeviceType type) {
  if (type == DeviceType::kCuda) return MakeCudaRankDevice();
  return std::make_unique<CpuRankDevice>();
}

}  // namespace lockstep
