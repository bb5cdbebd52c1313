#include "core/comm/mpi/communicator.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/comm/mpi/call_state.h"
#include "glog/logging.h"

namespace lockstep::mpi {
namespace {

// What a member brings into a split.
struct SentChoice {
  int64_t color;
  int64_t key;
  int64_t next_context;  // the first that no group of the member has
  char name[64];         // of the group
};

std::shared_ptr<const GroupInfo> All(const RankState& rank) {
  GroupInfo info{.name = "world", .rank = rank.rank()};
  info.members.resize(static_cast<size_t>(rank.size()));
  std::iota(info.members.begin(), info.members.end(), 0);
  return std::make_shared<const GroupInfo>(std::move(info));
}

// The group that the members of one color form, as `self` sees it.
GroupInfo GroupOf(const std::vector<SentChoice>& choices, int self, const std::vector<int>& ranks) {
  std::vector<std::pair<int64_t, int>> chosen;  // key and member
  for (int member = 0; member < static_cast<int>(choices.size()); ++member) {
    const SentChoice& choice = choices[static_cast<size_t>(member)];
    if (choice.color == choices[static_cast<size_t>(self)].color) {
      chosen.emplace_back(choice.key, member);
    }
  }
  std::sort(chosen.begin(), chosen.end());
  GroupInfo group{.name = choices[static_cast<size_t>(self)].name};
  for (const auto& [key, member] : chosen) {
    if (member == self) group.rank = static_cast<int>(group.members.size());
    group.members.push_back(ranks[static_cast<size_t>(member)]);
  }
  return group;
}

}  // namespace

MpiCommunicator::MpiCommunicator(std::shared_ptr<RankState> rank)
    : MpiCommunicator(rank, All(*rank), 0) {
  RankState::Lock lock(rank_->mutex());
  rank_->TakeContexts(1);
}

MpiCommunicator::MpiCommunicator(std::shared_ptr<RankState> rank,
                                 std::shared_ptr<const GroupInfo> group, int context)
    : Communicator(group, rank->ledger()),
      rank_(rank),
      collectives_(std::make_shared<CollectiveQueue>(rank, group, context)),
      messages_(std::make_shared<MessageQueue>(rank, group, context)) {}

Work MpiCommunicator::Start(Call call) {
  if (IsPointToPoint(call.signature.operation)) return messages_->Issue(std::move(call));
  const MemberBuffers buffers = {.input = MemoryOf(call.input), .output = MemoryOf(call.output)};
  return collectives_->Issue(std::move(call), buffers);
}

absl::StatusOr<std::unique_ptr<Communicator>> MpiCommunicator::Split(int color, int key,
                                                                     absl::string_view name) {
  SentChoice own;
  std::memset(&own, 0, sizeof(own));
  own.color = color;
  own.key = key;
  CHECK_LT(name.size(), sizeof(own.name)) << name;
  std::memcpy(own.name, name.data(), name.size());
  {
    RankState::Lock lock(rank_->mutex());
    own.next_context = rank_->next_context();
  }
  std::vector<SentChoice> choices(static_cast<size_t>(size()));
  Call call;
  call.signature.operation = Operation::kSplit;
  call.signature.count = static_cast<int64_t>(sizeof(SentChoice)) * size();
  call.label = std::string(name);
  LS_RETURN_IF_ERROR(
      collectives_
          ->Issue(std::move(call), {.input = reinterpret_cast<const std::byte*>(&own),
                                    .output = reinterpret_cast<std::byte*>(choices.data())})
          .Wait());

  // All members see the same choices: each new group gets a context that none of them has in use.
  std::set<int64_t> colors;
  int64_t first_context = 0;
  for (const SentChoice& choice : choices) {
    if (choice.color >= 0) colors.insert(choice.color);
    first_context = std::max(first_context, choice.next_context);
  }
  RankState::Lock lock(rank_->mutex());
  rank_->TakeContexts(static_cast<int>(first_context + static_cast<int64_t>(colors.size())));
  if (color < 0) return std::unique_ptr<Communicator>();
  for (int member = 0; member < size(); ++member) {
    const SentChoice& choice = choices[static_cast<size_t>(member)];
    if (choice.color == color && name != choice.name) {
      rank_->FailCall(absl::FailedPreconditionError(absl::StrCat(
          "split of ", group().ToString(), ", color ", color, ": rank ", ledger().rank(),
          " names the new group '", name, "', rank ", members()[static_cast<size_t>(member)],
          " names it '", choice.name, "'; its members must give it one name")));
      return rank_->status();
    }
  }
  lock.unlock();
  const int64_t context = first_context + std::distance(colors.begin(), colors.find(color));
  return std::unique_ptr<Communicator>(new MpiCommunicator(
      rank_, std::make_shared<const GroupInfo>(GroupOf(choices, rank(), members())),
      static_cast<int>(context)));
}

void MpiCommunicator::Abort(const absl::Status& cause) {
  RankState::Lock lock(rank_->mutex());
  rank_->FailReported(cause);
  rank_->Wake();
}

void MpiCommunicator::GiveUp(absl::string_view call) {
  RankState::Lock lock(rank_->mutex());
  rank_->FailDropped(call);
  rank_->Wake();
}

absl::Status MpiCommunicator::status() const {
  RankState::Lock lock(rank_->mutex());
  return rank_->status();
}

}  // namespace lockstep::mpi
