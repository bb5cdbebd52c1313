#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/kernels/kernels.h"
#include "core/tensor/device.h"

namespace lockstep {

// What a rank computes with: the kernels of its device, and under them its memory.
class RankDevice {
 public:
  virtual ~RankDevice() = default;
  virtual Kernels& kernels() = 0;
};

// Whether this program and this machine can run `ranks` ranks on such a device: Unavailable where
// the program was built without it, or the machine has none; Unimplemented where that many ranks
// could not talk to each other.
absl::Status CheckDevice(DeviceType type, int64_t ranks);

// For the calling thread, which is a rank's. Requires that CheckDevice is OK.
absl::StatusOr<std::unique_ptr<RankDevice>> MakeRankDevice(DeviceType type);

}  // namespace lockstep
