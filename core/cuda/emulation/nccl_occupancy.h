#pragma once

#include <list>
#include <memory>
#include <set>
#include <vector>

#include "core/cuda/emulation/nccl_group.h"

namespace lockstep::emulation {

// NCCL's kernels on all GPUs, and a watch over the rule for several communicators on one GPU ("NCCL
// User Guide", "Using multiple NCCL communicators concurrently"): a kernel that has begun keeps its
// place on the GPU until all ranks have come to it, so that kernels of two communicators which
// begin in different orders on two GPUs wait for each other for ever once only one has room. All of
// it is under the machine's lock.
class NcclOccupancy {
 public:
  // A rank's part in transfers of one communicator, which one kernel makes.
  struct Kernel {
    const NcclGroup* group;
    int device;
    std::vector<std::shared_ptr<NcclTransfer>> transfers;
  };
  // Kept here, since a GPU that has failed ends none.
  using KernelPtr = std::shared_ptr<const Kernel>;

  // One for the process, as GPUs are. From the environment: LOCKSTEP_EMULATED_NCCL_KERNELS, the
  // number of kernels of different communicators for which a GPU has room; any number unless it is
  // set.
  static NcclOccupancy& Get();

  enum class Entry { kBegun, kNoRoom, kDeadlock };
  // Begins a kernel if there is room. kDeadlock: there never will be.
  Entry Enter(const KernelPtr& kernel);
  // Ends a kernel, whether or not it had begun.
  void Leave(const KernelPtr& kernel);
  // Whether rules are checked, and a kernel on the GPU waits for other ranks.
  bool Spins(int device) const;

 private:
  explicit NcclOccupancy(size_t room) : room_(room) {}

  bool HasRoom(const Kernel& kernel) const;
  // Whether `kernel` waits for one of the blocked kernels on a GPU in `stuck`.
  bool WaitsForBlocked(const Kernel& kernel, const std::vector<int>& stuck) const;
  // Finds the GPUs that are stuck, for good.
  void FindDeadlocks();

  const size_t room_;  // kernels a GPU; 0: any number
  std::list<KernelPtr> begun_, blocked_;
  std::set<int> deadlocked_;  // GPUs
};

}  // namespace lockstep::emulation
