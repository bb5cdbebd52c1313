#pragma once

#include <cstdint>

namespace lockstep {

// What the members of a group can do together.
enum class Operation : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
  kSend,
  kRecv,
  kBarrier,
  kSplit,  // making a sub-group: an all-gather of what the members choose
};
inline constexpr int kOperations = 12;

// How elements are combined. kAverage is the sum divided by the number of members; of integers, the
// quotient loses its fraction. A NaN in any member's element gives NaN under kMin and kMax too.
enum class ReduceOp : uint8_t { kSum, kProduct, kMin, kMax, kAverage };

// "all_reduce", "reduce_scatter", ...: the names used in ledgers, metrics and messages.
constexpr const char* Name(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce:
      return "all_reduce";
    case Operation::kReduceScatter:
      return "reduce_scatter";
    case Operation::kAllGather:
      return "all_gather";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kReduce:
      return "reduce";
    case Operation::kGather:
      return "gather";
    case Operation::kScatter:
      return "scatter";
    case Operation::kAllToAll:
      return "all_to_all";
    case Operation::kSend:
      return "send";
    case Operation::kRecv:
      return "recv";
    case Operation::kBarrier:
      return "barrier";
    case Operation::kSplit:
      return "split";
  }
  return "?";
}

constexpr const char* Name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kProduct:
      return "product";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kAverage:
      return "average";
  }
  return "?";
}

// Whether elements of several members are combined.
constexpr bool Reduces(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduceScatter ||
         operation == Operation::kReduce;
}

// Whether one member plays a part of its own.
constexpr bool HasRoot(Operation operation) {
  return operation == Operation::kBroadcast || operation == Operation::kReduce ||
         operation == Operation::kGather || operation == Operation::kScatter;
}

// Whether the members' parts of the payload may have different sizes.
constexpr bool AllowsUneven(Operation operation) {
  return operation == Operation::kGather || operation == Operation::kScatter ||
         operation == Operation::kAllGather || operation == Operation::kReduceScatter;
}

// Whether two members exchange a message while the rest of the group takes no part.
constexpr bool IsPointToPoint(Operation operation) {
  return operation == Operation::kSend || operation == Operation::kRecv;
}

}  // namespace lockstep
