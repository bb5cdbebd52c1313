// Copies in memory of a run whose ranks are on several machines (core/checkpoint/in_memory.h). A
// machine has the shards of its own ranks and, as their neighbour, those of the machine before it,
// beside the manifest of all:
//
//   machine 0:  shards of machines 0 and 2
//   machine 1:  shards of machines 1 and 0
//   machine 2:  shards of machines 2 and 1
//
// So any one machine may go down, and of more than three any that are not neighbours: the others
// have the whole state. They bring it together before they go on.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/checkpoint/checkpoint_metadata.h"
#include "core/checkpoint/machines.h"
#include "core/checkpoint/state_tensor.h"
#include "core/comm/communicator.h"
#include "core/kernels/kernels.h"

namespace lockstep {

// Bytes that a machine keeps of a state, of which each rank saves `own` bytes. Called by all ranks;
// each is told about its own machine.
absl::StatusOr<int64_t> BytesOfMachine(int64_t own, const Machines& machines, Communicator& ranks);

// Writes copies, one replacing the other. All ranks call the same members in the same order. Where
// they are on one machine after all, as in a leg of few ranks, it has all shards alone.
class SpreadCopies {
 public:
  // `folder` is that of this rank's machine, and is there. All outlive the object.
  SpreadCopies(std::string folder, const Machines& machines, Kernels& kernels, Communicator& ranks);

  // Writes a copy. It replaces the one before when all machines have it: whenever one goes down,
  // the others have one of the two. The same error on all ranks, which leaves the one before:
  // OutOfRange for weights that are infinite or NaN.
  absl::Status Save(const CheckpointInfo& info, const std::vector<StateTensor>& state);

  // Fills those tensors of `state` that this rank has saved, from the newest copy, against its
  // checksums: DataLoss names the file and the tensor. Talks to no other rank.
  absl::Status ReadOwn(const std::vector<StateTensor>& state) const;

 private:
  absl::Status Write(const CheckpointInfo& info, const std::vector<StateTensor>& state);

  const std::string folder_;
  const Machines& machines_;
  Kernels& kernels_;
  Communicator& ranks_;
  std::string own_shard_;  // of the newest copy; empty: none
};

// Finds the newest copy that the machines have together, sound, and brings all of it to the folder
// in memory of each of them; all other copies of these folders then stand apart
// (core/checkpoint/in_memory.h). Where there is no such copy, or no room for it, all of them do;
// rank 0 says what went wrong. Nothing is removed, and copies that an earlier call has set apart
// count again. `check`, called on rank 0, tells whether the run can go on from a copy with `steps`
// behind it; rank 0 says why not, and an older copy is taken. Called by all ranks, on several
// machines. FailedPrecondition, which one rank tells, where one does not see the run directory.
absl::Status BringTogether(const std::string& run_directory, const Machines& machines,
                           Communicator& ranks,
                           absl::FunctionRef<absl::Status(int64_t steps)> check);

}  // namespace lockstep
