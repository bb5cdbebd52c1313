#include "core/cuda/emulation/nccl_occupancy.h"

#include <algorithm>
#include <cstdlib>
#include <set>

namespace lockstep::emulation {
namespace {

bool IsComplete(const NcclTransfer& transfer) { return transfer.arrived == transfer.expected; }

bool Contains(const NcclOccupancy::Kernel& kernel, const std::shared_ptr<NcclTransfer>& transfer) {
  return std::find(kernel.transfers.begin(), kernel.transfers.end(), transfer) !=
         kernel.transfers.end();
}

}  // namespace

NcclOccupancy& NcclOccupancy::Get() {
  static NcclOccupancy& occupancy = *new NcclOccupancy([] {
    const char* const room = std::getenv("LOCKSTEP_EMULATED_NCCL_KERNELS");
    return room == nullptr ? size_t{0} : size_t{std::strtoul(room, nullptr, 10)};
  }());
  return occupancy;
}

NcclOccupancy::Entry NcclOccupancy::Enter(const KernelPtr& kernel) {
  blocked_.remove(kernel);
  if (HasRoom(*kernel)) {
    begun_.push_back(kernel);
    return Entry::kBegun;
  }
  blocked_.push_back(kernel);
  FindDeadlocks();
  return deadlocked_.contains(kernel->device) ? Entry::kDeadlock : Entry::kNoRoom;
}

void NcclOccupancy::Leave(const KernelPtr& kernel) {
  begun_.remove(kernel);
  blocked_.remove(kernel);
}

bool NcclOccupancy::Spins(int device) const {
  return room_ > 0 && std::any_of(begun_.begin(), begun_.end(), [&](const KernelPtr& kernel) {
           return kernel->device == device &&
                  !std::all_of(kernel->transfers.begin(), kernel->transfers.end(),
                               [](const auto& transfer) { return IsComplete(*transfer); });
         });
}

bool NcclOccupancy::HasRoom(const Kernel& kernel) const {
  if (room_ == 0) return true;
  std::set<const NcclGroup*> others;
  for (const KernelPtr& other : begun_) {
    if (other->device == kernel.device && other->group != kernel.group) others.insert(other->group);
  }
  return others.size() < room_;
}

bool NcclOccupancy::WaitsForBlocked(const Kernel& kernel, const std::vector<int>& stuck) const {
  return std::any_of(blocked_.begin(), blocked_.end(), [&](const KernelPtr& blocked) {
    const bool is_stuck = std::find(stuck.begin(), stuck.end(), blocked->device) != stuck.end();
    return is_stuck &&
           std::any_of(kernel.transfers.begin(), kernel.transfers.end(), [&](const auto& transfer) {
             return !IsComplete(*transfer) && Contains(*blocked, transfer);
           });
  });
}

// GPUs on which a kernel is blocked are stuck, but for those on which one that has begun waits for
// no GPU that is stuck: it ends, and makes room.
void NcclOccupancy::FindDeadlocks() {
  std::vector<int> stuck;
  for (const KernelPtr& blocked : blocked_) stuck.push_back(blocked->device);
  const auto goes_on = [&](int candidate) {
    return std::any_of(begun_.begin(), begun_.end(), [&](const KernelPtr& begun) {
      return begun->device == candidate && !WaitsForBlocked(*begun, stuck);
    });
  };
  while (std::erase_if(stuck, goes_on) > 0) {
  }
  deadlocked_.insert(stuck.begin(), stuck.end());
}

}  // namespace lockstep::emulation
