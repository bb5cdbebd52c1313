// A GPU for each rank that is a process. Launchers differ in what processes see: all GPUs of the
// machine, or under Slurm (--gpus-per-task) one each, which all of them call GPU 0. UUIDs tell.

#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/comm/communicator.h"

namespace lockstep {

// A GPU's UUID, which no other GPU has on any machine.
using GpuId = std::array<int64_t, 2>;

// Returns for each rank the position in visible[rank], the GPUs that the rank sees, of one that no
// other rank has. Ranks that see the same GPUs get them in order. Unavailable, with the rank, where
// there is no such choice.
absl::StatusOr<std::vector<int>> DivideGpus(absl::Span<const std::vector<GpuId>> visible);

// Called by all ranks of `world`, with the GPUs that each sees, at least one: DivideGpus for the
// calling rank. All ranks get the same error.
absl::StatusOr<int> ChooseOwnGpu(absl::Span<const GpuId> visible, Communicator& world);

}  // namespace lockstep
