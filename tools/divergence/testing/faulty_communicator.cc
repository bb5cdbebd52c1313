#include "tools/divergence/testing/faulty_communicator.h"

#include <cstring>  // std::memcpy, std::memset
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/comm/group_info.h"
#include "core/comm/operation.h"
#include "glog/logging.h"

namespace lockstep {

FaultyCommunicator::FaultyCommunicator(Communicator& host, std::set<std::string> lost)
    : Communicator(std::make_shared<GroupInfo>(host.group()), host.ledger()),
      host_(host),
      lost_(std::move(lost)) {}

FaultyCommunicator::FaultyCommunicator(std::unique_ptr<Communicator> host,
                                       std::set<std::string> lost)
    : Communicator(std::make_shared<GroupInfo>(host->group()), host->ledger()),
      owned_(std::move(host)),
      host_(*owned_),
      lost_(std::move(lost)) {}

absl::StatusOr<std::unique_ptr<Communicator>> FaultyCommunicator::OnTopOf(
    absl::StatusOr<std::unique_ptr<Communicator>> host) const {
  if (!host.ok() || *host == nullptr) return host;
  return std::unique_ptr<Communicator>(new FaultyCommunicator(*std::move(host), lost_));
}

absl::StatusOr<std::unique_ptr<Communicator>> FaultyCommunicator::Split(int color, int key,
                                                                        absl::string_view name) {
  return OnTopOf(host_.Split(color, key, name));
}

absl::StatusOr<std::unique_ptr<Communicator>> FaultyCommunicator::SplitBy(
    absl::FunctionRef<Choice(int rank)> choice_of, absl::string_view name) {
  return OnTopOf(host_.SplitBy(choice_of, name));
}

Work FaultyCommunicator::Start(Call call) {
  const auto& [operation, dtype, op, root, count, counts, memory] = call.signature;
  const Tensor &input = call.input, &output = call.output;
  if (lost_.contains(call.label)) {
    if (operation == Operation::kAllReduce) {
      if (input.raw() != output.raw()) {
        std::memcpy(output.raw(), input.raw(), static_cast<size_t>(input.bytes()));
      }
      return Work();
    }
    if (operation == Operation::kSend) {
      std::memset(input.raw(), 0, static_cast<size_t>(input.bytes()));
    }
  }
  switch (operation) {
    case Operation::kAllReduce:
      return host_.AllReduce(input, output, op, call.label);
    case Operation::kReduceScatter:
      return host_.ReduceScatter(input, output, op, call.label, counts);
    case Operation::kAllGather:
      return host_.AllGather(input, output, call.label, counts);
    case Operation::kBroadcast:
      return host_.Broadcast(input, root, call.label);
    case Operation::kReduce:
      return host_.Reduce(input, output, op, root, call.label);
    case Operation::kGather:
      return host_.Gather(input, output, root, call.label, counts);
    case Operation::kScatter:
      return host_.Scatter(input, output, root, call.label, counts);
    case Operation::kAllToAll:
      return host_.AllToAll(input, output, call.label);
    case Operation::kSend:
      return host_.Send(input, root, call.label);
    case Operation::kRecv:
      return host_.Recv(output, root, call.label);
    case Operation::kBarrier:
      return host_.Barrier(call.label);
    case Operation::kSplit:
      break;  // is no call
  }
  LOG(FATAL) << Name(operation);
  return Work();
}

void FaultyCommunicator::GiveUp(absl::string_view call) {
  host_.Abort(absl::AbortedError(absl::StrCat("a rank went away in ", call)));
}

}  // namespace lockstep
