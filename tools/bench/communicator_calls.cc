#include "tools/bench/communicator_calls.h"

#include "absl/status/status.h"
#include "core/base/status.h"
#include "core/comm/work.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr char kLabel[] = "benchmark";
constexpr int kRoot = 0;

}  // namespace

CommunicatorCalls::CommunicatorCalls(Communicator& comm)
    : comm_(comm),
      value_(Tensor::Empty(allocator_, {1}, DType::kF64, MemoryClass::kCommunication)) {}

absl::Status CommunicatorCalls::Run(const TimedCall& call, const CallTensors& tensors) {
  const auto& [input, output] = tensors;
  switch (call.operation) {
    case Operation::kAllReduce:
      return comm_.AllReduce(input, output, ReduceOp::kSum, kLabel).Wait();
    case Operation::kReduceScatter:
      return comm_.ReduceScatter(input, output, ReduceOp::kSum, kLabel).Wait();
    case Operation::kAllGather:
      return comm_.AllGather(input, output, kLabel).Wait();
    case Operation::kBroadcast:
      return comm_.Broadcast(input, kRoot, kLabel).Wait();
    case Operation::kReduce:
      return comm_.Reduce(input, output, ReduceOp::kSum, kRoot, kLabel).Wait();
    case Operation::kGather:
      return comm_.Gather(input, output, kRoot, kLabel).Wait();
    case Operation::kScatter:
      return comm_.Scatter(input, output, kRoot, kLabel).Wait();
    case Operation::kAllToAll:
      return comm_.AllToAll(input, output, kLabel).Wait();
    case Operation::kSend: {
      const int n = comm_.size();
      Work works[] = {comm_.Send(input, (comm_.rank() + 1) % n, kLabel),
                      comm_.Recv(output, (comm_.rank() + n - 1) % n, kLabel)};
      return WaitAll(absl::MakeSpan(works));
    }
    case Operation::kRecv:
    case Operation::kBarrier:
    case Operation::kSplit:
      break;
  }
  LOG(FATAL) << Name(call.operation) << " is not timed";
}

absl::Status CommunicatorCalls::Barrier() { return comm_.Barrier(kLabel).Wait(); }

absl::StatusOr<double> CommunicatorCalls::Max(double value) {
  *value_.data<double>() = value;
  LS_RETURN_IF_ERROR(comm_.AllReduce(value_, value_, ReduceOp::kMax, kLabel).Wait());
  return *value_.data<double>();
}

}  // namespace lockstep
