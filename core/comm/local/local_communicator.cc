#include "core/comm/local/local_communicator.h"

#include <algorithm>  // std::sort
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "core/comm/local/message_state.h"
#include "core/comm/local/out_of_memory.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// The memory of a tensor that takes part; null if it has none to take part with.
std::byte* MemoryOf(const Tensor& tensor) {
  if (!tensor.defined() || tensor.elements() == 0) return nullptr;
  CHECK(tensor.device().type == DeviceType::kCpu) << tensor.ToString();
  CHECK(tensor.raw() != nullptr) << tensor.ToString() << " is released";
  return tensor.raw();
}

}  // namespace

std::unique_ptr<LocalCommunicator> LocalCommunicator::OfWorld(std::shared_ptr<WorldState> world,
                                                              Ledger& ledger) {
  CHECK_GE(ledger.rank(), 0);
  CHECK_LT(ledger.rank(), world->size());
  world->Join(ledger.rank(), ledger);
  std::shared_ptr<LocalGroup> all = world->group_of_all();
  auto info = std::make_shared<const GroupInfo>(
      GroupInfo{.name = "world", .members = all->members(), .rank = ledger.rank()});
  return std::unique_ptr<LocalCommunicator>(new LocalCommunicator(
      Kind::kWorld, std::move(world), std::move(all), std::move(info), ledger));
}

LocalCommunicator::LocalCommunicator(Kind kind, std::shared_ptr<WorldState> world,
                                     std::shared_ptr<LocalGroup> local_group,
                                     std::shared_ptr<const GroupInfo> info, Ledger& ledger)
    : Communicator(std::move(info), ledger),
      kind_(kind),
      world_(std::move(world)),
      local_group_(std::move(local_group)),
      queue_(std::make_shared<CollectiveQueue>(world_, local_group_, shared_group(), ledger)),
      sent_(members().size()),
      received_(members().size()) {
  world_->engine(ledger.rank()).Add(queue_.get());
}

LocalCommunicator::~LocalCommunicator() {
  world_->engine(ledger().rank()).Remove(queue_.get());
  if (kind_ != Kind::kWorld) return;
  DoOnceThereIsMemory([this] { world_->Leave(ledger().rank()); });
}

Work LocalCommunicator::Start(Call call) {
  const MemberBuffers buffers = {.input = MemoryOf(call.input), .output = MemoryOf(call.output)};
  const Signature& signature = call.signature;
  if (!IsPointToPoint(signature.operation)) return queue_->Issue(std::move(call), buffers);
  std::vector<int64_t>& counter = signature.operation == Operation::kSend ? sent_ : received_;
  const int64_t sequence = counter[static_cast<size_t>(signature.root)]++;
  return Work(std::make_shared<MessageState>(world_, *local_group_, shared_group(), ledger(),
                                             std::move(call), sequence));
}

absl::StatusOr<std::unique_ptr<Communicator>> LocalCommunicator::Split(int color, int key,
                                                                       absl::string_view name) {
  struct Choice {
    int64_t color;
    int64_t key;
  };
  const Choice own = {color, key};
  std::vector<Choice> choices(members().size());
  const int64_t sequence = queue_->next_sequence();
  Call call;
  call.signature.operation = Operation::kSplit;
  call.signature.count = static_cast<int64_t>(sizeof(Choice)) * size();
  call.label = std::string(name);
  LS_RETURN_IF_ERROR(
      queue_
          ->Issue(std::move(call), {.input = reinterpret_cast<const std::byte*>(&own),
                                    .output = reinterpret_cast<std::byte*>(choices.data())})
          .Wait());
  if (color < 0) return std::unique_ptr<Communicator>();

  std::vector<std::pair<int64_t, int>> chosen;  // key and rank here
  for (int member = 0; member < size(); ++member) {
    const Choice& choice = choices[static_cast<size_t>(member)];
    if (choice.color == color) chosen.emplace_back(choice.key, member);
  }
  std::sort(chosen.begin(), chosen.end());
  GroupInfo info{.name = std::string(name)};
  for (const auto& [member_key, member] : chosen) {
    if (member == rank()) info.rank = static_cast<int>(info.members.size());
    info.members.push_back(members()[static_cast<size_t>(member)]);
  }
  LS_ASSIGN_OR_RETURN(
      std::shared_ptr<LocalGroup> made,
      world_->MakeGroup(*local_group_, sequence, color, info.members, ledger().rank(), name));
  return std::unique_ptr<Communicator>(
      new LocalCommunicator(Kind::kSubGroup, world_, std::move(made),
                            std::make_shared<const GroupInfo>(std::move(info)), ledger()));
}

void LocalCommunicator::Abort(const absl::Status& cause) {
  world_->FailRank(ledger().rank(), cause);
}

}  // namespace lockstep
