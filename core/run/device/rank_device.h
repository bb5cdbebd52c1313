#pragma once

#include <chrono>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/comm/held_memory.h"
#include "core/comm/nccl_reductions.h"
#include "core/kernels/attention_kernels.h"
#include "core/kernels/cpu/instruction_set.h"
#include "core/kernels/kernels.h"
#include "core/kernels/options.h"
#include "core/kernels/product_shapes.h"
#include "core/run/device/gpu_places.h"
#include "core/tensor/device.h"

namespace lockstep {

// What a rank computes with: the kernels of its device, and under them its memory.
class RankDevice {
 public:
  virtual ~RankDevice() = default;
  virtual Kernels& kernels() = 0;
  // All ranks, for tensors of this device and of the host.
  virtual Communicator& world() = 0;
};

// The devices of the ranks of this process.
class RankDevices {
 public:
  // `instructions` are those of ranks that compute on the CPU. Unavailable where the program was
  // built without such devices, the machine has none, or they are too few for the ranks.
  static absl::StatusOr<std::shared_ptr<RankDevices>> Create(DeviceType type,
                                                             const RanksHere& ranks,
                                                             InstructionSet instructions);
  virtual ~RankDevices() = default;

  // What reductions hold beside the tensors of a call, on one node; null: nothing.
  virtual HeldBytes held_bytes(NcclReductions /*reductions*/) const { return nullptr; }

  // Names the kernels that these devices lack (Kernels::Lack), as the interface has them.
  virtual std::set<std::string> lacking_kernels() const { return {}; }
  // Whether their attention knows documents (Attention::documents).
  virtual bool masks_documents() const { return true; }

  struct Options {
    std::chrono::nanoseconds timeout;  // of waits for other ranks
    Fp32Products fp32_products = Fp32Products::kFp32;
    ProductShapes product_shapes = ProductShapes::kDivided;
    AttentionKernels attention = AttentionKernels::kOwn;
    NcclReductions nccl_reductions = NcclReductions::kFast;
  };
  // For the calling thread, which is a rank's; called by all ranks. `world` is all of them on the
  // host, and outlives the device.
  virtual absl::StatusOr<std::unique_ptr<RankDevice>> Make(Communicator& world,
                                                           const Options& options) = 0;
};

}  // namespace lockstep
