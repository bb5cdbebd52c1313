#include "core/run/device/cuda_rank_device.h"

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/comm/cuda/gpu_device.h"
#include "core/comm/device/device_communicator.h"
#include "core/comm/device/exact_reduction.h"
#include "core/comm/nccl/device.h"
#include "core/cuda/allocator.h"
#include "core/cuda/context.h"
#include "core/cuda/device.h"
#include "core/cuda/libraries/libraries.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "core/run/device/own_gpu.h"

namespace lockstep {
namespace {

using MakeCommDevice = std::function<std::unique_ptr<CommDevice>(CudaContext&)>;

class CudaRankDevice final : public RankDevice {
 public:
  CudaRankDevice(std::unique_ptr<CudaContext> context, const RankDevices::Options& options,
                 const MakeCommDevice& make_comm_device)
      : context_(std::move(context)),
        allocator_(*context_),
        kernels_(*context_, allocator_, options.fp32_products, options.product_shapes,
                 options.attention),
        comm_device_(make_comm_device(*context_)) {}

  absl::Status Connect(Communicator& world) {
    LS_ASSIGN_OR_RETURN(world_, DeviceCommunicator::Create(world, *comm_device_));
    return absl::OkStatus();
  }

  Kernels& kernels() override { return kernels_; }
  Communicator& world() override { return *world_; }

 private:
  const std::unique_ptr<CudaContext> context_;
  CudaAllocator allocator_;
  CudaKernels kernels_;
  const std::unique_ptr<CommDevice> comm_device_;
  std::unique_ptr<DeviceCommunicator> world_;
};

class CudaRankDevices final : public RankDevices {
 public:
  CudaRankDevices(GpuPlaces places, bool are_threads)
      : places_(places), are_threads_(are_threads) {}

  HeldBytes held_bytes(NcclReductions reductions) const override {
    const bool exact = reductions == NcclReductions::kExact;
    if (!exact || places_ == GpuPlaces::kShared) return nullptr;
    return [](const Signature& signature, int size, bool /*in_place*/) {
      return ExactReductionBytes(signature, {.size = size, .rank = 0, .ranks_a_node = size});
    };
  }

  std::set<std::string> lacking_kernels() const override { return {"AttentionOfFurtherTokens"}; }

  bool masks_documents() const override { return false; }

  absl::StatusOr<std::unique_ptr<RankDevice>> Make(Communicator& world,
                                                   const Options& options) override {
    const bool shared = places_ == GpuPlaces::kShared;
    LS_ASSIGN_OR_RETURN(const int ordinal, OrdinalOf(world));
    LS_ASSIGN_OR_RETURN(std::unique_ptr<CudaContext> context, CudaContext::Create(ordinal));
    try {
      auto device = std::make_unique<CudaRankDevice>(
          std::move(context), options, [&](CudaContext& gpu) -> std::unique_ptr<CommDevice> {
            if (shared) return std::make_unique<SharedGpu>(gpu, boards_);
            return std::make_unique<NcclGpu>(gpu, options.timeout, options.nccl_reductions, world,
                                             are_threads_ ? boards_ : nullptr);
          });
      LS_RETURN_IF_ERROR(device->Connect(world));
      return device;
    } catch (const StatusException& error) {
      return error.status();
    }
  }

 private:
  // The GPU of the calling rank, as its process counts those that it sees.
  absl::StatusOr<int> OrdinalOf(Communicator& world) const {
    if (places_ == GpuPlaces::kShared) return 0;
    if (are_threads_) return world.rank();
    LS_ASSIGN_OR_RETURN(const std::vector<GpuId> gpus, cuda::DeviceIds());
    return ChooseOwnGpu(gpus, world);
  }

  const GpuPlaces places_;
  const bool are_threads_;
  const std::shared_ptr<RoundBoards> boards_ = std::make_shared<RoundBoards>();
};

}  // namespace

absl::StatusOr<std::shared_ptr<RankDevices>> CreateCudaRankDevices(const RanksHere& ranks) {
  LS_ASSIGN_OR_RETURN(const int gpus, cuda::CountDevices());
  const GpuPlaces places = PlaceOnGpus(gpus, ranks);
  // What every run needs; cuDNN, which transformers do without, is loaded by its first use.
  LS_RETURN_IF_ERROR(cuda::LoadCublasLt());
  if (places == GpuPlaces::kOwn) LS_RETURN_IF_ERROR(cuda::LoadNccl());
  return std::make_shared<CudaRankDevices>(places, ranks.processes == 0);
}

}  // namespace lockstep
