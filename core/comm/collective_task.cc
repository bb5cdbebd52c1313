#include "core/comm/collective_task.h"

#include <algorithm>  // std::max, std::min
#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "core/comm/host_copy.h"
#include "core/comm/reduce.h"

namespace lockstep {
namespace {

class HostMover final : public Mover {
 public:
  // For a task that copies about `bytes` bytes.
  explicit HostMover(int64_t bytes) : store_(StoreForCopies(bytes)) {}

  void Copy(std::byte* to, const std::byte* from, int64_t bytes) override {
    lockstep::CopyToAll(from, {&to, 1}, bytes, store_);
  }
  void CopyToAll(absl::Span<std::byte* const> to, const std::byte* from, int64_t bytes) override {
    lockstep::CopyToAll(from, to, bytes, store_);
  }
  bool reads_once() const override { return store_ == Store::kStreaming; }
  void Reduce(DType dtype, ReduceOp op, absl::Span<const std::byte* const> inputs,
              absl::Span<std::byte* const> outputs, int64_t begin, int64_t end) override {
    ReduceByTree(dtype, op, inputs, outputs, begin, end);
  }
  void Swap(std::byte* one, std::byte* other, int64_t bytes) override {
    lockstep::Swap(one, other, bytes, PreferredMoves());
  }

 private:
  const Store store_;
};

// A copy that a collective is made of.
struct Flow {
  std::byte* to;
  const std::byte* from;
  int64_t bytes;
};
using Flows = absl::InlinedVector<Flow, 16>;

struct ByteRange {
  int64_t begin;
  int64_t end;
};

// The task's share of `bytes` bytes. Shares begin on cache lines, so that no two tasks write to the
// same.
ByteRange ShareOf(CollectiveTask task, int64_t bytes) {
  constexpr int64_t kLine = 64;
  const int64_t lines = (bytes + kLine - 1) / kLine;
  const auto boundary = [&](int index) {
    return std::min(bytes, lines * index / task.count * kLine);
  };
  return {.begin = boundary(task.index), .end = boundary(task.index + 1)};
}

// What one collective reads and writes, and what moves it.
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

  // Elements [begin, end) of the payload that a task takes where the operation has no chunks.
  ByteRange ElementsOf(CollectiveTask task) const {
    const ByteRange bytes = ShareOf(task, signature.count * element());
    return {.begin = bytes.begin / element(), .end = bytes.end / element()};
  }

  void AddFlow(int to, int64_t to_element, const std::byte* from, int64_t count,
               Flows& flows) const {
    if (count == 0) return;
    std::byte* const output = members[to].output + to_element * element();
    if (output != from) flows.push_back({output, from, count * element()});
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

  void AddFlows(int rank, Flows& flows) const;
  void TakeOutput(int rank) const;
  void CopyShare(CollectiveTask task) const;
  void BringToAll(CollectiveTask task) const;
  void RunTask(CollectiveTask task) const;
};

// The copies that fill the output of `rank` where nothing is reduced.
void Collective::AddFlows(int rank, Flows& flows) const {
  const Chunk own = ChunkOf(rank);
  switch (signature.operation) {
    case Operation::kGather:
      if (rank != signature.root) return;
      [[fallthrough]];
    case Operation::kAllGather:
    case Operation::kSplit:
      for (int member = 0; member < size(); ++member) {
        const Chunk chunk = ChunkOf(member);
        AddFlow(rank, chunk.begin, members[member].input, chunk.count, flows);
      }
      return;
    case Operation::kBroadcast:
      return AddFlow(rank, 0, members[signature.root].input, signature.count, flows);
    case Operation::kScatter:
      return AddFlow(rank, 0, members[signature.root].input + own.begin * element(), own.count,
                     flows);
    case Operation::kAllToAll:
      for (int member = 0; member < size(); ++member) {
        AddFlow(rank, ChunkOf(member).begin, members[member].input + own.begin * element(),
                own.count, flows);
      }
      return;
    default:
      return;
  }
}

void Collective::TakeOutput(int rank) const {
  switch (signature.operation) {
    case Operation::kReduce:
      if (rank != signature.root) return;
      [[fallthrough]];
    case Operation::kAllReduce:
      return Reduce(0, {members[rank].output}, 0, signature.count);
    case Operation::kReduceScatter: {
      const Chunk chunk = ChunkOf(rank);
      return Reduce(chunk.begin, {members[rank].output}, 0, chunk.count);
    }
    default: {
      Flows flows;
      AddFlows(rank, flows);
      for (const Flow& flow : flows) mover.Copy(flow.to, flow.from, flow.bytes);
    }
  }
}

// The task's share of all copies, laid end to end: members whose own chunk stays in its place, as a
// root's in place does, help the others.
void Collective::CopyShare(CollectiveTask task) const {
  Flows flows;
  int64_t bytes = 0;
  for (int member = 0; member < size(); ++member) AddFlows(member, flows);
  for (const Flow& flow : flows) bytes += flow.bytes;
  const ByteRange share = ShareOf(task, bytes);
  int64_t at = 0;
  for (const Flow& flow : flows) {
    const int64_t begin = std::max(share.begin - at, int64_t{0});
    const int64_t end = std::min(share.end - at, flow.bytes);
    if (begin < end) mover.Copy(flow.to + begin, flow.from + begin, end - begin);
    at += flow.bytes;
  }
}

// The task's share of the payload, from whoever has it to all others.
void Collective::BringToAll(CollectiveTask task) const {
  const ByteRange share = ShareOf(task, signature.count * element());
  const auto bring = [&](const std::byte* input, int64_t first, int64_t count) {
    const int64_t begin = std::max(share.begin, first), end = std::min(share.end, first + count);
    if (begin >= end) return;
    absl::InlinedVector<std::byte*, 16> outputs;
    for (const MemberBuffers& member : members) {
      if (member.output + first != input) outputs.push_back(member.output + begin);
    }
    mover.CopyToAll(outputs, input + begin - first, end - begin);
  };
  if (signature.operation == Operation::kBroadcast) {
    return bring(members[signature.root].input, 0, signature.count * element());
  }
  for (int member = 0; member < size(); ++member) {
    const Chunk chunk = ChunkOf(member);
    bring(members[member].input, chunk.begin * element(), chunk.count * element());
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
      const ByteRange elements = ElementsOf(task);
      return Reduce(0, outputs, elements.begin, elements.end);
    }
    case Operation::kReduceScatter:
      for (int member = 0; member < size(); ++member) {
        if (owns(member)) TakeOutput(member);
      }
      return;
    // A slice is brought to all: the root's memory is not read by one core alone.
    case Operation::kBroadcast:
      return BringToAll(task);
    // What is brought to all is read once; what is taken arrives in the cache of who takes it.
    case Operation::kAllGather:
      return mover.reads_once() ? BringToAll(task) : CopyShare(task);
    case Operation::kGather:
    case Operation::kScatter:
    case Operation::kSplit:
      return CopyShare(task);
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
    case Operation::kBarrier:
    case Operation::kSend:
    case Operation::kRecv:
      return;
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
  HostMover mover(/*bytes=*/0);
  Collective{signature, members, mover}.TakeOutput(rank);
}

void RunTask(const Signature& signature, absl::Span<const MemberBuffers> members, int rank) {
  const auto size = static_cast<int>(members.size());
  HostMover mover(PayloadBytes(signature) / size);
  RunTask(signature, members, {.index = rank, .count = size}, mover);
}

}  // namespace lockstep
