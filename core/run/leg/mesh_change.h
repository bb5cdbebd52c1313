#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/checkpoint.h"
#include "core/comm/communicator.h"
#include "core/kernels/kernels.h"

namespace lockstep {

// Payload of the messages that a state was moved with.
struct MovedBytes {
  int64_t planned = 0;  // by PlanMoves, from the two layouts alone
  int64_t sent = 0;     // by the ledgers
};

// A part of a run's state that lies on this rank: what the rank trained, or a copy of another's.
using HeldState = std::vector<StateTensor>;

// Moves a run's state in memory from one layout to another. Called by all ranks of `world`, each
// with what it has (none where it was idle) and the tensors to fill (none where it will be). A
// rank is sent the elements that it lacks, label "change of mesh"; messages are made in rounds, so
// that few of their buffers are there at a time. Tensors of `from` and `to` must not share memory.
// Returns the bytes of all ranks together. DataLoss if nobody has an element.
absl::StatusOr<MovedBytes> MoveState(const std::vector<HeldState>& from, const HeldState& to,
                                     Kernels& kernels, Communicator& world);

}  // namespace lockstep
