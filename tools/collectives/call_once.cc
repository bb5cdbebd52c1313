#include "tools/collectives/call_once.h"

#include "glog/logging.h"

namespace lockstep {

std::array<Work, 2> BeginOnce(Communicator& comm, Operation operation, const Tensor& input,
                              const Tensor& output, ReduceOp reduce_op, int root,
                              absl::string_view label, absl::Span<const int64_t> counts) {
  switch (operation) {
    case Operation::kAllReduce:
      return {comm.AllReduce(input, output, reduce_op, label)};
    case Operation::kReduceScatter:
      return {comm.ReduceScatter(input, output, reduce_op, label, counts)};
    case Operation::kAllGather:
      return {comm.AllGather(input, output, label, counts)};
    case Operation::kBroadcast:
      return {comm.Broadcast(output, root, label)};
    case Operation::kReduce:
      return {comm.Reduce(input, output, reduce_op, root, label)};
    case Operation::kGather:
      return {comm.Gather(input, output, root, label, counts)};
    case Operation::kScatter:
      return {comm.Scatter(input, output, root, label, counts)};
    case Operation::kAllToAll:
      return {comm.AllToAll(input, output, label)};
    case Operation::kSend: {
      const int n = comm.size();
      std::array<Work, 2> works;
      if (input.defined()) works[0] = comm.Send(input, (comm.rank() + 1) % n, label);
      if (output.defined()) works[1] = comm.Recv(output, (comm.rank() + n - 1) % n, label);
      return works;
    }
    default:
      LOG(FATAL) << Name(operation) << " is no call between all members";
  }
}

absl::Status CallOnce(Communicator& comm, Operation operation, const Tensor& input,
                      const Tensor& output, ReduceOp reduce_op, int root, absl::string_view label,
                      absl::Span<const int64_t> counts) {
  std::array<Work, 2> works =
      BeginOnce(comm, operation, input, output, reduce_op, root, label, counts);
  return WaitAll(absl::MakeSpan(works));
}

}  // namespace lockstep
