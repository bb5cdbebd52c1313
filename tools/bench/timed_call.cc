#include "tools/bench/timed_call.h"

#include <algorithm>  // std::max

#include "core/base/nearest.h"
#include "glog/logging.h"

namespace lockstep {
bool HasParts(Operation operation) {
  return AllowsUneven(operation) || operation == Operation::kAllToAll;
}

const std::vector<Operation>& TimedOperations() {
  static const auto& operations = *new std::vector<Operation>{
      Operation::kAllReduce, Operation::kReduceScatter, Operation::kAllGather,
      Operation::kBroadcast, Operation::kReduce,        Operation::kGather,
      Operation::kScatter,   Operation::kAllToAll,      Operation::kSend};
  return operations;
}

std::string TimedName(Operation operation) {
  return operation == Operation::kSend ? "send_recv" : Name(operation);
}

absl::StatusOr<Operation> TimedOperation(const std::string& name) {
  return FindNamed("operation", name, TimedOperations(), TimedName);
}

absl::StatusOr<DType> TimedDType(const std::string& name) {
  // MPI has no 16-bit floating-point types to compare with.
  constexpr DType kTimed[] = {DType::kF32, DType::kF64, DType::kI32, DType::kI64};
  return FindNamed("dtype", name, kTimed, [](DType dtype) { return Name(dtype); });
}

TimedCall CallOfSize(Operation operation, DType dtype, int ranks, int64_t bytes, bool in_place) {
  CHECK_GE(ranks, 2);
  constexpr int64_t kLine = 64;
  const int64_t element = SizeOf(dtype);
  int64_t unit = 1;  // elements of which the payload is a multiple
  if (HasParts(operation)) unit = ranks * (in_place ? kLine / element : 1);
  const int64_t units = std::max<int64_t>(1, (bytes + unit * element - 1) / (unit * element));
  return {.operation = operation,
          .dtype = dtype,
          .ranks = ranks,
          .elements = units * unit,
          .in_place = in_place && operation != Operation::kSend};
}

double BusFactor(Operation operation, int ranks) {
  const double n = ranks;
  if (operation == Operation::kAllReduce) return 2 * (n - 1) / n;
  return HasParts(operation) ? (n - 1) / n : 1;
}

Traffic LeastTraffic(const TimedCall& call) {
  const int n = call.ranks;
  const int64_t whole = call.bytes();
  const int64_t share = whole / n;
  // In place, each rank's own part of what it reads and writes need not be touched.
  const int64_t moved = call.in_place ? share / n * (n - 1) : share;
  switch (call.operation) {
    case Operation::kAllReduce:
      return {.reads = n, .writes = n, .stream_bytes = share, .in_place = call.in_place};
    case Operation::kReduceScatter:
    case Operation::kReduce:
      return {.reads = n, .writes = 1, .stream_bytes = share, .in_place = call.in_place};
    case Operation::kAllGather:
      return {.reads = 1, .writes = call.in_place ? n - 1 : n, .stream_bytes = share};
    case Operation::kBroadcast:
      return {.reads = 1, .writes = n - 1, .stream_bytes = share};
    case Operation::kGather:
    case Operation::kScatter:
      return {.reads = 1, .writes = 1, .stream_bytes = moved};
    case Operation::kAllToAll:
      return {.reads = 1, .writes = 1, .stream_bytes = n * moved, .in_place = call.in_place};
    case Operation::kSend:
      return {.reads = 1, .writes = 1, .stream_bytes = whole};
    default:
      LOG(FATAL) << Name(call.operation) << " is not timed";
  }
}

}  // namespace lockstep
