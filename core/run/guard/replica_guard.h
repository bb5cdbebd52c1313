#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/checkpoint/state_tensor.h"
#include "core/comm/communicator.h"
#include "core/kernels/kernels.h"
#include "core/run/guard/check_schedule.h"
#include "core/run/guard/sound_state.h"

namespace lockstep {

// Which elements of a tensor a rank holds, and what they are, as hashes.
struct HeldHash {
  uint64_t place = 0;  // of the elements' indices; 0: the rank holds none
  uint64_t value = 0;  // of their bits

  friend bool operator==(const HeldHash&, const HeldHash&) = default;
};

// Replicas of a tensor's elements that are not the same.
struct ReplicaFault {
  size_t tensor = 0;          // index
  std::vector<int> replicas;  // all ranks that hold the elements
  std::vector<int> suspects;  // those outvoted by more than half; all, where nobody has a majority
  bool is_decided() const { return suspects.size() < replicas.size(); }
};

// Finds the replicas that have parted. held[rank][tensor]: each rank has an entry for each tensor.
std::vector<ReplicaFault> FindFaults(const std::vector<std::vector<HeldHash>>& held);

// Compares what ranks hold of the same elements of the state, which is the same to the bit while
// memory and processors do right. Called by all ranks, with the same names in the same order.
// DataLoss, the same on all ranks, names step (counted from 1), tensor and rank; where only two
// hold the elements, both. What one rank alone holds is not compared. Costs a pass over what
// several ranks hold (about 2 GB/s) and two all-gathers of 8 bytes a tensor.
absl::Status CheckReplicas(int64_t step, const std::vector<StateTensor>& state, Kernels& kernels,
                           Communicator& ranks);

// CheckReplicas for a run that wants it (guard.every): behind the steps of its schedule, and before
// each checkpoint and copy in memory. One rank tells what was found: DataLoss, as above.
class ReplicaGuard {
 public:
  // The kernels outlive it, and so does `sound`, which hears of each comparison.
  ReplicaGuard(const CheckSchedule& schedule, Kernels& kernels, SoundState& sound)
      : schedule_(schedule), kernels_(kernels), sound_(sound) {}

  // The state after `steps` steps, where a comparison is due.
  absl::Status AfterSteps(int64_t steps, const std::vector<StateTensor>& state,
                          Communicator& ranks);
  // The same state, before it is saved, unless it has just been compared.
  absl::Status BeforeSaving(int64_t steps, const std::vector<StateTensor>& state,
                            Communicator& ranks);

  // Other ranks call the members from now on, some of which have compared nothing: a change of
  // mesh.
  void Forget() { compared_steps_ = -1; }

 private:
  const CheckSchedule schedule_;
  Kernels& kernels_;
  SoundState& sound_;
  int64_t compared_steps_ = -1;  // behind the state that was compared last
};

}  // namespace lockstep
