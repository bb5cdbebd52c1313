#include "core/train/cuda_rank_device.h"

#include <utility>

#include "core/base/status.h"
#include "core/cuda/allocator.h"
#include "core/cuda/context.h"
#include "core/cuda/device.h"
#include "core/kernels/cuda/cuda_kernels.h"

namespace lockstep {
namespace {

class CudaRankDevice final : public RankDevice {
 public:
  explicit CudaRankDevice(std::unique_ptr<CudaContext> context)
      : context_(std::move(context)), allocator_(*context_), kernels_(*context_, allocator_) {}

  Kernels& kernels() override { return kernels_; }

 private:
  const std::unique_ptr<CudaContext> context_;
  CudaAllocator allocator_;
  CudaKernels kernels_;
};

}  // namespace

absl::Status CheckCudaDevice() { return cuda::CountDevices().status(); }

absl::StatusOr<std::unique_ptr<RankDevice>> MakeCudaRankDevice() {
  LS_ASSIGN_OR_RETURN(std::unique_ptr<CudaContext> context, CudaContext::Create(0));
  try {
    return std::make_unique<CudaRankDevice>(std::move(context));
  } catch (const StatusException& error) {
    return error.status();
  }
}

}  // namespace lockstep
