#include "core/comm/folded_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/comm/operation.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// The result where all members contribute what this one does: the smallest, the largest and the
// mean of equal numbers are the number itself, and so are the chunks of a gather.
void CopyOwn(const Call& call) {
  const Tensor &from = call.input, &to = call.output;
  if (!from.defined() || !to.defined() || from.raw() == to.raw() || from.bytes() == 0) return;
  for (int64_t at = 0; at + from.bytes() <= to.bytes(); at += from.bytes()) {
    std::memmove(to.raw() + at, from.raw(), from.bytes());
  }
}

}  // namespace

FoldedCommunicator::FoldedCommunicator(std::shared_ptr<const GroupInfo> group,
                                       std::unique_ptr<Communicator> owned, Communicator* host,
                                       std::vector<int> present)
    : Communicator(std::move(group), host->ledger()),
      owned_(std::move(owned)),
      host_(host),
      present_(std::move(present)) {}

std::unique_ptr<FoldedCommunicator> FoldedCommunicator::World(Communicator& host, int size,
                                                              const std::vector<int>& present) {
  CHECK_EQ(host.size(), static_cast<int>(present.size()));
  auto group =
      std::make_shared<GroupInfo>(GroupInfo{.name = host.name(), .rank = present[host.rank()]});
  for (int rank = 0; rank < size; ++rank) group->members.push_back(rank);
  return std::unique_ptr<FoldedCommunicator>(
      new FoldedCommunicator(std::move(group), nullptr, &host, present));
}

absl::StatusOr<std::unique_ptr<Communicator>> FoldedCommunicator::Split(int /*color*/, int /*key*/,
                                                                        absl::string_view name) {
  return absl::UnimplementedError(
      absl::StrCat("group '", name, "' is made from members that are not there; use SplitBy"));
}

absl::StatusOr<std::unique_ptr<Communicator>> FoldedCommunicator::SplitBy(
    absl::FunctionRef<Choice(int rank)> choice_of, absl::string_view name) {
  const Choice own = choice_of(rank());
  struct Member {
    int key, rank;  // the rank here
    auto operator<=>(const Member&) const = default;
  };
  std::vector<Member> chosen;
  for (int member = 0; member < size(); ++member) {
    const Choice choice = choice_of(member);
    if (choice.color == own.color) chosen.push_back({choice.key, member});
  }
  std::sort(chosen.begin(), chosen.end());
  LS_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> host, host_->Split(own.color, own.key, name));
  if (host == nullptr) return std::unique_ptr<Communicator>();
  auto group = std::make_shared<GroupInfo>(GroupInfo{.name = std::string(name)});
  std::vector<int> present;
  for (const Member& member : chosen) {
    const int at = group->size();
    if (member.rank == rank()) group->rank = at;
    if (HostRankOf(member.rank) >= 0) present.push_back(at);
    group->members.push_back(members()[member.rank]);
  }
  Communicator* const there = host.get();
  return std::unique_ptr<Communicator>(
      new FoldedCommunicator(std::move(group), std::move(host), there, std::move(present)));
}

int FoldedCommunicator::HostRankOf(int rank) const {
  const auto at = std::find(present_.begin(), present_.end(), rank);
  return at == present_.end() ? -1 : static_cast<int>(at - present_.begin());
}

Work FoldedCommunicator::Start(Call call) {
  Signature& signature = call.signature;
  if (signature.root >= 0) {
    const int root = HostRankOf(signature.root);
    if (root < 0) return Work();
    signature.root = root;
    if (signature.operation == Operation::kBroadcast || IsPointToPoint(signature.operation)) {
      return host_->Start(std::move(call));
    }
  }
  if (static_cast<int>(present_.size()) == size()) return host_->Start(std::move(call));
  if (signature.operation == Operation::kAllReduce) {
    if (host_->size() > 1) return host_->Start(std::move(call));
  }
  CopyOwn(call);
  return Work();
}

}  // namespace lockstep
