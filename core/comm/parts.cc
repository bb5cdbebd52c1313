#include "core/comm/parts.h"

#include <algorithm>  // std::max, std::min
#include <cstddef>
#include <cstdint>
#include <cstring>  // std::memcpy

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "core/comm/reduce.h"

namespace lockstep {
namespace {

void Copy(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

// Elements [begin, end), whose element 0 lies at `first_element` of each input, into the outputs.
void Reduce(const Signature& signature, absl::Span<const MemberBuffers> members,
            int64_t first_element, absl::Span<std::byte* const> outputs, int64_t begin,
            int64_t end) {
  absl::InlinedVector<const std::byte*, 16> inputs;
  for (const MemberBuffers& member : members) {
    inputs.push_back(member.input + first_element * SizeOf(signature.dtype));
  }
  ReduceInOrder(signature.dtype, signature.reduce_op, inputs, outputs, begin, end);
}

// The slice of `count` elements that is a member's share where parts mean nothing. Slices begin on
// cache lines, so that no two members write to the same.
Part SliceOf(const Signature& signature, int size, int rank) {
  const int64_t line = 64 / SizeOf(signature.dtype);
  const int64_t lines = (signature.count + line - 1) / line;
  const auto boundary = [&](int member) {
    return std::min(signature.count, lines * member / size * line);
  };
  return {.begin = boundary(rank), .count = boundary(rank + 1) - boundary(rank)};
}

// Exchanges the parts that `one` and `other` have for each other, elements [begin, begin + count)
// of each; through a buffer where either works in place.
void Exchange(const Signature& signature, absl::Span<const MemberBuffers> members, int one,
              int other, int64_t begin, int64_t count) {
  constexpr int64_t kBlock = 8192;
  std::byte block[kBlock];
  const int size = static_cast<int>(members.size());
  const int64_t element = SizeOf(signature.dtype);
  const int64_t to_other = (PartOf(signature, size, other).begin + begin) * element;
  const int64_t to_one = (PartOf(signature, size, one).begin + begin) * element;
  if (members[one].input != members[one].output && members[other].input != members[other].output) {
    Copy(members[one].output + to_other, members[other].input + to_one, count * element);
    Copy(members[other].output + to_one, members[one].input + to_other, count * element);
    return;
  }
  for (int64_t at = 0; at < count * element; at += kBlock) {
    const int64_t bytes = std::min(kBlock, count * element - at);
    Copy(block, members[one].input + to_other + at, bytes);
    Copy(members[one].output + to_other + at, members[other].input + to_one + at, bytes);
    Copy(members[other].output + to_one + at, block, bytes);
  }
}

}  // namespace

int64_t InputBytes(const Signature& signature, int size, int rank) {
  const bool root = rank == signature.root;
  switch (signature.operation) {
    case Operation::kAllReduce:
    case Operation::kReduceScatter:
    case Operation::kReduce:
    case Operation::kAllToAll:
      return PayloadBytes(signature);
    case Operation::kBroadcast:
    case Operation::kScatter:
      return root ? PayloadBytes(signature) : 0;
    case Operation::kAllGather:
    case Operation::kGather:
    case Operation::kSplit:
      return PartOf(signature, size, rank).count * SizeOf(signature.dtype);
    case Operation::kSend:
    case Operation::kRecv:
    case Operation::kBarrier:
      return 0;
  }
  return 0;
}

int64_t LargestInputBytes(const Signature& signature, int size) {
  int64_t most = 0;
  for (int member = 0; member < size; ++member) {
    most = std::max(most, InputBytes(signature, size, member));
    if (signature.counts.empty() && !HasRoot(signature.operation)) break;  // all are alike
  }
  return most;
}

void TakeOutput(const Signature& signature, absl::Span<const MemberBuffers> members, int rank) {
  const int size = static_cast<int>(members.size());
  const int64_t element = SizeOf(signature.dtype);
  const bool root = rank == signature.root;
  const auto part_of = [&](int member) { return PartOf(signature, size, member); };
  std::byte* const output = members[rank].output;

  switch (signature.operation) {
    case Operation::kReduce:
      if (!root) return;
      [[fallthrough]];
    case Operation::kAllReduce:
      return Reduce(signature, members, 0, {output}, 0, signature.count);
    case Operation::kReduceScatter: {
      const Part part = part_of(rank);
      return Reduce(signature, members, part.begin, {output}, 0, part.count);
    }
    case Operation::kGather:
      if (!root) return;
      [[fallthrough]];
    case Operation::kAllGather:
    case Operation::kSplit:
      for (int member = 0; member < size; ++member) {
        const Part part = part_of(member);
        Copy(output + part.begin * element, members[member].input, part.count * element);
      }
      return;
    case Operation::kBroadcast:
      return Copy(output, members[signature.root].input, signature.count * element);
    case Operation::kScatter: {
      const Part part = part_of(rank);
      return Copy(output, members[signature.root].input + part.begin * element,
                  part.count * element);
    }
    case Operation::kAllToAll: {
      const Part own = part_of(rank);
      for (int member = 0; member < size; ++member) {
        Copy(output + part_of(member).begin * element, members[member].input + own.begin * element,
             own.count * element);
      }
      return;
    }
    case Operation::kBarrier:
    case Operation::kSend:
    case Operation::kRecv:
      return;
  }
}

void MoveShare(const Signature& signature, absl::Span<const MemberBuffers> members, int rank) {
  const int size = static_cast<int>(members.size());
  const int64_t element = SizeOf(signature.dtype);

  switch (signature.operation) {
    // Each member reduces one slice and writes it to whoever wants it.
    case Operation::kAllReduce:
    case Operation::kReduce: {
      absl::InlinedVector<std::byte*, 16> outputs;
      for (int member = 0; member < size; ++member) {
        if (signature.operation == Operation::kAllReduce || member == signature.root) {
          outputs.push_back(members[member].output);
        }
      }
      const Part slice = SliceOf(signature, size, rank);
      return Reduce(signature, members, 0, outputs, slice.begin, slice.begin + slice.count);
    }
    // Each member brings its part to the root: together they are faster than the root alone.
    case Operation::kGather: {
      const Part part = PartOf(signature, size, rank);
      return Copy(members[signature.root].output + part.begin * element, members[rank].input,
                  part.count * element);
    }
    // Each member brings a slice to all: the root's memory is not read by one core alone.
    case Operation::kBroadcast: {
      const Part slice = SliceOf(signature, size, rank);
      const std::byte* from = members[signature.root].input + slice.begin * element;
      for (const MemberBuffers& member : members) {
        Copy(member.output + slice.begin * element, from, slice.count * element);
      }
      return;
    }
    // Two members share the work of exchanging their parts.
    case Operation::kAllToAll: {
      const int64_t count = PartOf(signature, size, rank).count;
      const int64_t half = count / 2;
      for (int member = 0; member < size; ++member) {
        if (member == rank) {
          const int64_t own = PartOf(signature, size, rank).begin * element;
          Copy(members[rank].output + own, members[rank].input + own, count * element);
        } else if (rank < member) {
          Exchange(signature, members, rank, member, 0, half);
        } else {
          Exchange(signature, members, rank, member, half, count - half);
        }
      }
      return;
    }
    default:  // the others take what is theirs
      return TakeOutput(signature, members, rank);
  }
}

}  // namespace lockstep
