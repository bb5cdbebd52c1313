#include "core/comm/signature.h"

#include <cstdint>
#include <numeric>  // std::accumulate
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep {

Chunk ChunkOf(const Signature& signature, int size, int rank) {
  if (signature.counts.empty()) {
    const int64_t count = signature.count / size;
    return {.begin = count * rank, .count = count};
  }
  const auto first = signature.counts.begin();
  return {.begin = std::accumulate(first, first + rank, int64_t{0}),
          .count = signature.counts[rank]};
}

int64_t PayloadBytes(const Signature& signature) {
  return signature.count * SizeOf(signature.dtype);
}

int64_t HostBytes(const Signature& signature) {
  return signature.memory == DeviceType::kCpu ? PayloadBytes(signature) : 0;
}

std::string DescribeArguments(const Signature& signature) {
  if (signature.operation == Operation::kBarrier || signature.operation == Operation::kSplit) {
    return "";
  }
  std::string text = absl::StrCat(Name(signature.dtype), " x ", signature.count);
  if (!signature.counts.empty()) {
    absl::StrAppend(&text, " (", absl::StrJoin(signature.counts, "+"), ")");
  }
  if (Reduces(signature.operation)) absl::StrAppend(&text, ", ", Name(signature.reduce_op));
  if (HasRoot(signature.operation)) absl::StrAppend(&text, ", root ", signature.root);
  if (signature.operation == Operation::kSend) absl::StrAppend(&text, ", to ", signature.root);
  if (signature.operation == Operation::kRecv) absl::StrAppend(&text, ", from ", signature.root);
  return text;
}

double WireBytes(const Signature& signature, int size, int rank) {
  const auto total = static_cast<double>(PayloadBytes(signature));
  const auto own = [&] {
    return static_cast<double>(ChunkOf(signature, size, rank).count * SizeOf(signature.dtype));
  };
  switch (signature.operation) {
    case Operation::kAllReduce:
      return 2 * total * (size - 1) / size;
    case Operation::kReduceScatter:
      return total - own();
    case Operation::kAllGather:
      return own() * (size - 1);
    case Operation::kAllToAll:
      return total * (size - 1) / size;
    case Operation::kBroadcast:
      return (rank + 1) % size == signature.root ? 0 : total;
    case Operation::kReduce:
      return rank == signature.root ? 0 : total;
    case Operation::kGather:
      return rank == signature.root ? 0 : own();
    case Operation::kScatter:
      return rank == signature.root ? total - own() : 0;
    case Operation::kSend:
      return total;
    case Operation::kRecv:
    case Operation::kBarrier:
    case Operation::kSplit:
      return 0;
  }
  return 0;
}

}  // namespace lockstep
