#include "core/comm/local/group.h"

#include <cstdint>
#include <cstring>  // std::memcpy
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "core/comm/ledger.h"

namespace lockstep {

LocalGroup::LocalGroup(std::vector<int> members)
    : members_(std::move(members)),
      slots_{std::vector<Slot>(members_.size()), std::vector<Slot>(members_.size())},
      mailboxes_(members_.size()) {}

bool LocalGroup::IsSmall(const Signature& signature) const {
  return LargestInputBytes(signature, size()) <= kSmallBytes;
}

bool LocalGroup::Arrive(int member, int64_t round, const Signature& signature,
                        absl::string_view label, MemberBuffers buffers) {
  Slot& slot = slots_[round % 2][member];
  slot.signature = signature;
  slot.label.assign(label.data(), label.size());
  slot.buffers = buffers;
  if (IsSmall(signature)) {
    const int64_t bytes = InputBytes(signature, size(), member);
    if (bytes > 0) std::memcpy(slot.small, buffers.input, static_cast<size_t>(bytes));
    slot.buffers.input = slot.small;
  }
  slot.round.store(round, std::memory_order_release);
  return arrived_[round % 2].value.fetch_add(1) + 1 == (round / 2 + 1) * size();
}

bool LocalGroup::AllArrived(int64_t round) const {
  return arrived_[round % 2].value.load() >= (round / 2 + 1) * size();
}

bool LocalGroup::Disagree(int64_t round, int member) const {
  const Signature& own = slots(round)[member].signature;
  for (const Slot& slot : slots(round)) {
    if (!(slot.signature == own)) return true;
  }
  return false;
}

std::string LocalGroup::DescribeDisagreement(int64_t round) const {
  std::vector<std::string> calls;
  for (const Slot& slot : slots(round)) calls.push_back(DescribeCall(slot.signature, slot.label));
  return CallersText(calls, members_);
}

void LocalGroup::Move(int64_t round, int member) const {
  absl::InlinedVector<MemberBuffers, 16> buffers;
  for (const Slot& slot : slots(round)) buffers.push_back(slot.buffers);
  const Signature& signature = slots(round)[member].signature;
  if (IsSmall(signature)) {
    TakeOutput(signature, buffers, member);
  } else {
    RunTask(signature, buffers, member);
  }
}

bool LocalGroup::HasArrived(int64_t round, int member) const {
  return slots(round)[member].round.load() >= round;
}

std::vector<int> LocalGroup::Ranks(int64_t round, Who who) const {
  std::vector<int> ranks;
  for (int member = 0; member < size(); ++member) {
    if (HasArrived(round, member) == (who == Who::kArrived)) ranks.push_back(members_[member]);
  }
  return ranks;
}

}  // namespace lockstep
