#include "core/comm/collective_task.h"

#include <algorithm>  // std::max, std::min
#include <cstddef>
#include <cstdint>
#include <cstring>  // std::memcpy

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "core/comm/reduce.h"

namespace lockstep {
namespace {

class HostMover final : public Mover {
 public:
  void Copy(std::byte* to, const std::byte* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void Reduce(DType dtype, ReduceOp op, absl::Span<const std::byte* const> inputs,
              absl::Span<std::byte* const> outputs, int64_t begin, int64_t end) override {
    ReduceByTree(dtype, op, inputs, outputs, begin, end);
  }
  void Swap(std::byte* one, std::byte* other, int64_t bytes) override {
    constexpr int64_t kBlock = 8192;
    std::byte block[kBlock];
    for (int64_t at = 0; at < bytes; at += kBlock) {
      const auto size = static_cast<size_t>(std::min(kBlock, bytes - at));
      std::memcpy(block, one + at, size);
      std::memcpy(one + at, other + at, size);
      std::memcpy(other + at, block, size);
    }
  }
};

// Of one collective: what there is to read and to write, and what moves it.
struct Collective {
  const Signature& signature;
  absl::Span<const MemberBuffers> members;
  Mover& mover;

  int size() const { return static_cast<int>(members.size()); }
  int64_t element() const { return SizeOf(signature.dtype); }
  Chunk ChunkOf(int member) const { return lockstep::ChunkOf(signature, size(), member); }

  void Copy(std::byte* to, const std::byte* from, int64_t bytes) const {
    if (bytes > 0 && to != from) mover.Copy(to, from, bytes);
  }

  // Elements [begin, end), whose element 0 lies at `first_element` of each input, into the outputs.
  void Reduce(int64_t first_element, absl::Span<std::byte* const> outputs, int64_t begin,
              int64_t end) const {
    if (begin >= end) return;
    absl::InlinedVector<const std::byte*, 16> inputs;
    for (const MemberBuffers& member : members) {
      inputs.push_back(member.input + first_element * element());
    }
    mover.Reduce(signature.dtype, signature.reduce_op, inputs, outputs, begin, end);
  }

  // The slice of the payload that a task takes where the operation has no chunks. Slices begin on
  // cache lines, so that no two tasks write to the same.
  Chunk SliceOf(CollectiveTask task) const {
    const int64_t line = 64 / element();
    const int64_t lines = (signature.count + line - 1) / line;
    const auto boundary = [&](int index) {
      return std::min(signature.count, lines * index / task.count * line);
    };
    const int64_t begin = boundary(task.index);
    return {.begin = begin, .count = boundary(task.index + 1) - begin};
  }

  // Exchanges elements [begin, end) of the chunks that `one` and `other` have for each other.
  void Exchange(int one, int other, int64_t begin, int64_t end) const {
    const int64_t bytes = (end - begin) * element();
    if (bytes <= 0) return;
    const MemberBuffers &a = members[one], &b = members[other];
    const int64_t to_other = (ChunkOf(other).begin + begin) * element();
    const int64_t to_one = (ChunkOf(one).begin + begin) * element();
    const bool a_in_place = a.input == a.output, b_in_place = b.input == b.output;
    if (a_in_place && b_in_place) return mover.Swap(a.output + to_other, b.output + to_one, bytes);
    // What is written in place is read first.
    if (a_in_place) Copy(b.output + to_one, a.input + to_other, bytes);
    Copy(a.output + to_other, b.input + to_one, bytes);
    if (!a_in_place) Copy(b.output + to_one, a.input + to_other, bytes);
  }

  void TakeOutput(int rank) const;
  void RunTask(CollectiveTask task) const;
};

void Collective::TakeOutput(int rank) const {
  const bool root = rank == signature.root;
  std::byte* const output = members[rank].output;
  switch (signature.operation) {
    case Operation::kReduce:
      if (!root) return;
      [[fallthrough]];
    case Operation::kAllReduce:
      return Reduce(0, {output}, 0, signature.count);
    case Operation::kReduceScatter: {
      const Chunk chunk = ChunkOf(rank);
      return Reduce(chunk.begin, {output}, 0, chunk.count);
    }
    case Operation::kGather:
      if (!root) return;
      [[fallthrough]];
    case Operation::kAllGather:
    case Operation::kSplit:
      for (int member = 0; member < size(); ++member) {
        const Chunk chunk = ChunkOf(member);
        Copy(output + chunk.begin * element(), members[member].input, chunk.count * element());
      }
      return;
    case Operation::kBroadcast:
      return Copy(output, members[signature.root].input, signature.count * element());
    case Operation::kScatter: {
      const Chunk chunk = ChunkOf(rank);
      return Copy(output, members[signature.root].input + chunk.begin * element(),
                  chunk.count * element());
    }
    case Operation::kAllToAll: {
      const Chunk own = ChunkOf(rank);
      for (int member = 0; member < size(); ++member) {
        Copy(output + ChunkOf(member).begin * element(),
             members[member].input + own.begin * element(), own.count * element());
      }
      return;
    }
    case Operation::kBarrier:
    case Operation::kSend:
    case Operation::kRecv:
      return;
  }
}

void Collective::RunTask(CollectiveTask task) const {
  const auto owns = [&](int member) { return member % task.count == task.index; };
  switch (signature.operation) {
    // One slice is reduced, and written to whoever wants it.
    case Operation::kAllReduce:
    case Operation::kReduce: {
      absl::InlinedVector<std::byte*, 16> outputs;
      for (int member = 0; member < size(); ++member) {
        if (signature.operation == Operation::kAllReduce || member == signature.root) {
          outputs.push_back(members[member].output);
        }
      }
      const Chunk slice = SliceOf(task);
      return Reduce(0, outputs, slice.begin, slice.begin + slice.count);
    }
    // Each member brings its chunk to the root: together they are faster than the root alone.
    case Operation::kGather:
      for (int member = 0; member < size(); ++member) {
        if (!owns(member)) continue;
        const Chunk chunk = ChunkOf(member);
        Copy(members[signature.root].output + chunk.begin * element(), members[member].input,
             chunk.count * element());
      }
      return;
    // A slice is brought to all: the root's memory is not read by one core alone.
    case Operation::kBroadcast: {
      const Chunk slice = SliceOf(task);
      const std::byte* from = members[signature.root].input + slice.begin * element();
      for (const MemberBuffers& member : members) {
        Copy(member.output + slice.begin * element(), from, slice.count * element());
      }
      return;
    }
    // Two members share the work of exchanging their chunks.
    case Operation::kAllToAll: {
      const int64_t count = ChunkOf(0).count, half = count / 2;
      for (int one = 0; one < size(); ++one) {
        if (owns(one)) {
          const int64_t own = ChunkOf(one).begin * element();
          Copy(members[one].output + own, members[one].input + own, count * element());
        }
        for (int other = one + 1; other < size(); ++other) {
          if (!owns(one) && !owns(other)) continue;
          Exchange(one, other, owns(one) ? 0 : half, owns(other) ? count : half);
        }
      }
      return;
    }
    default:  // the others take what is theirs
      for (int member = 0; member < size(); ++member) {
        if (owns(member)) TakeOutput(member);
      }
  }
}

}  // namespace

void RunTask(const Signature& signature, absl::Span<const MemberBuffers> members,
             CollectiveTask task, Mover& mover) {
  Collective{signature, members, mover}.RunTask(task);
}

int64_t InputBytes(const Signature& signature, int size, int rank) {
  if (signature.memory != DeviceType::kCpu) return 0;
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
      return ChunkOf(signature, size, rank).count * SizeOf(signature.dtype);
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
  if (signature.memory != DeviceType::kCpu) return;
  HostMover mover;
  Collective{signature, members, mover}.TakeOutput(rank);
}

void RunTask(const Signature& signature, absl::Span<const MemberBuffers> members, int rank) {
  HostMover mover;
  RunTask(signature, members, {.index = rank, .count = static_cast<int>(members.size())}, mover);
}

}  // namespace lockstep
