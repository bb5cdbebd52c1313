#include "core/comm/device/exact_reduction.h"

#include <algorithm>
#include <bit>  // std::has_single_bit
#include <set>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "core/tensor/allocator.h"

namespace lockstep {
namespace {

// Who reduces which elements. Members of one node are `inner` consecutive ranks; `outer` nodes.
class ReductionPlan {
 public:
  ReductionPlan(const Signature& signature, const DeviceMember& member)
      : signature_(signature), size_(member.size), inner_(InnerOf(signature, member)) {}

  int inner() const { return inner_; }
  int outer() const { return size_ / inner_; }
  int RankAt(int node, int local) const { return node * inner_ + local; }

  int64_t Bytes(int64_t elements) const { return elements * SizeOf(signature_.dtype); }
  // What a rank reduces of the payload: its own chunk, or an even one on cache lines.
  Chunk ChunkOf(int rank) const {
    if (signature_.operation == Operation::kReduceScatter) {
      return lockstep::ChunkOf(signature_, size_, rank);
    }
    const int64_t line = AlignedBytes(1) / SizeOf(signature_.dtype);
    const int64_t lines = (signature_.count + size_ * line - 1) / (size_ * line);
    const int64_t begin = std::min(rank * lines * line, signature_.count);
    return {begin, std::min(lines * line, signature_.count - begin)};
  }
  // The ranks at place `local` of all nodes reduce a segment: their chunks, one behind the other.
  // Where each begins, in bytes, and last where the segment ends.
  std::vector<int64_t> SegmentOffsets(int local) const {
    std::vector<int64_t> offsets = {0};
    for (int node = 0; node < outer(); ++node) {
      offsets.push_back(offsets.back() + Bytes(ChunkOf(RankAt(node, local)).count));
    }
    return offsets;
  }

 private:
  static int InnerOf(const Signature& signature, const DeviceMember& member) {
    const int inner = member.ranks_a_node;
    // An average is divided once, behind the whole sum.
    const bool two_levels = inner > 1 && inner < member.size && member.size % inner == 0 &&
                            std::has_single_bit(static_cast<unsigned>(inner)) &&
                            signature.reduce_op != ReduceOp::kAverage;
    return two_levels ? inner : member.size;
  }

  const Signature& signature_;
  const int size_, inner_;
};

// One member's part.
class MemberReduction {
 public:
  MemberReduction(const Call& call, const DeviceMember& member, std::byte* held,
                  DeviceStream& stream, DevicePeers& peers)
      : signature_(call.signature),
        plan_(signature_, member),
        size_(member.size),
        rank_(member.rank),
        node_(rank_ / plan_.inner()),
        local_(rank_ % plan_.inner()),
        offsets_(plan_.SegmentOffsets(local_)),
        input_(call.input.raw()),
        output_(call.output.defined() ? call.output.raw() : nullptr),
        held_(held),
        stream_(stream),
        peers_(peers) {}

  void Queue() {
    const Chunk own = plan_.ChunkOf(rank_);
    std::byte* sum = SumOf(own);
    if (plan_.outer() == 1) {
      ReduceWithinNode({&sum, 1});
    } else {
      // Each node's sums take the place of what the first other rank has sent.
      std::vector<std::byte*> node_sums;
      for (int node = 0; node < plan_.outer(); ++node) {
        node_sums.push_back(Received(0) + offsets_[node]);
      }
      ReduceWithinNode(node_sums);
      ReduceBetweenNodes(node_sums, sum);
    }
    if (signature_.operation == Operation::kAllReduce) GatherToAll();
    if (signature_.operation == Operation::kReduce) GatherToRoot(own, sum);
  }

 private:
  using Messages = std::vector<PeerMessage>;
  using Inputs = absl::InlinedVector<const std::byte*, 16>;

  // Where the own chunk's sum goes: into the output where that has it, else behind all else.
  std::byte* SumOf(const Chunk& own) {
    switch (signature_.operation) {
      case Operation::kReduceScatter:
        return output_;
      case Operation::kReduce:
        if (rank_ != signature_.root) return BetweenNodes(plan_.outer() - 1);
        [[fallthrough]];
      default:
        return output_ + plan_.Bytes(own.begin);
    }
  }

  // Held: a segment from each other rank of the node, a chunk from each other node, a chunk.
  std::byte* Received(int index) const { return held_ + index * AlignedBytes(offsets_.back()); }
  std::byte* BetweenNodes(int index) const {
    return Received(plan_.inner() - 1) +
           index * AlignedBytes(plan_.Bytes(plan_.ChunkOf(rank_).count));
  }

  // The `members` inputs in order: this member's own, and what the others have sent.
  template <typename ReceivedAt>
  void Reduce(int members, int own_index, const std::byte* own, int64_t count, std::byte* sum,
              const ReceivedAt& received_at) {
    if (count == 0) return;
    Inputs inputs;
    for (int i = 0, received = 0; i < members; ++i) {
      inputs.push_back(i == own_index ? own : received_at(received++));
    }
    stream_.Reduce(signature_.dtype, signature_.reduce_op, inputs, {&sum, 1}, 0, count);
  }

  void ReduceWithinNode(absl::Span<std::byte* const> sums) {
    Messages messages;
    for (int local = 0, received = 0; local < plan_.inner(); ++local) {
      if (local == local_) continue;
      for (int node = 0; node < plan_.outer(); ++node) {
        const Chunk theirs = plan_.ChunkOf(plan_.RankAt(node, local));
        const Chunk ours = plan_.ChunkOf(plan_.RankAt(node, local_));
        messages.push_back({.member = plan_.RankAt(node_, local),
                            .send = input_ + plan_.Bytes(theirs.begin),
                            .send_bytes = plan_.Bytes(theirs.count),
                            .receive = Received(received) + offsets_[node],
                            .receive_bytes = plan_.Bytes(ours.count)});
      }
      ++received;
    }
    peers_.Exchange(messages);
    for (int node = 0; node < plan_.outer(); ++node) {
      const Chunk chunk = plan_.ChunkOf(plan_.RankAt(node, local_));
      Reduce(plan_.inner(), local_, input_ + plan_.Bytes(chunk.begin), chunk.count, sums[node],
             [&](int index) { return Received(index) + offsets_[node]; });
    }
  }

  void ReduceBetweenNodes(const std::vector<std::byte*>& node_sums, std::byte* sum) {
    const int64_t count = plan_.ChunkOf(rank_).count;
    Messages messages;
    for (int node = 0, received = 0; node < plan_.outer(); ++node) {
      if (node == node_) continue;
      const int member = plan_.RankAt(node, local_);
      messages.push_back({.member = member,
                          .send = node_sums[node],
                          .send_bytes = plan_.Bytes(plan_.ChunkOf(member).count),
                          .receive = BetweenNodes(received++),
                          .receive_bytes = plan_.Bytes(count)});
    }
    peers_.Exchange(messages);
    Reduce(plan_.outer(), node_, node_sums[node_], count, sum,
           [&](int index) { return BetweenNodes(index); });
  }

  // Chunks of all ranks at one place of their nodes, and then of all places.
  void GatherToAll() {
    const auto message = [this](int member, int sent, int received) {
      const Chunk from = plan_.ChunkOf(sent), to = plan_.ChunkOf(received);
      return PeerMessage{.member = member,
                         .send = output_ + plan_.Bytes(from.begin),
                         .send_bytes = plan_.Bytes(from.count),
                         .receive = output_ + plan_.Bytes(to.begin),
                         .receive_bytes = plan_.Bytes(to.count)};
    };
    Messages between, within;
    for (int node = 0; node < plan_.outer(); ++node) {
      const int member = plan_.RankAt(node, local_);
      if (node != node_) between.push_back(message(member, rank_, member));
      for (int local = 0; local < plan_.inner(); ++local) {
        if (local == local_) continue;
        within.push_back(message(plan_.RankAt(node_, local), member, plan_.RankAt(node, local)));
      }
    }
    if (!between.empty()) peers_.Exchange(between);
    peers_.Exchange(within);
  }

  void GatherToRoot(const Chunk& own, std::byte* sum) {
    Messages messages;
    if (rank_ != signature_.root) {
      messages.push_back(
          {.member = signature_.root, .send = sum, .send_bytes = plan_.Bytes(own.count)});
    }
    for (int member = 0; rank_ == signature_.root && member < size_; ++member) {
      if (member == rank_) continue;
      const Chunk chunk = plan_.ChunkOf(member);
      messages.push_back({.member = member,
                          .receive = output_ + plan_.Bytes(chunk.begin),
                          .receive_bytes = plan_.Bytes(chunk.count)});
    }
    peers_.Exchange(messages);
  }

  const Signature& signature_;
  const ReductionPlan plan_;
  const int size_, rank_, node_, local_;
  const std::vector<int64_t> offsets_;  // of the chunks in this place's segment
  const std::byte* const input_;
  std::byte* const output_;
  std::byte* const held_;
  DeviceStream& stream_;
  DevicePeers& peers_;
};

}  // namespace

int RanksANode(absl::Span<const int64_t> node_of_rank) {
  const auto ranks = static_cast<int>(node_of_rank.size());
  int first_node = 0;
  while (first_node < ranks && node_of_rank[first_node] == node_of_rank[0]) ++first_node;
  if (first_node == 0 || ranks % first_node != 0) return 1;
  std::set<int64_t> nodes;
  for (int rank = 0; rank < ranks; ++rank) {
    if (node_of_rank[rank] != node_of_rank[rank - rank % first_node]) return 1;
    nodes.insert(node_of_rank[rank]);
  }
  return static_cast<int>(nodes.size()) == ranks / first_node ? first_node : 1;
}

bool IsReduction(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduce ||
         operation == Operation::kReduceScatter;
}

int64_t ExactReductionBytes(const Signature& signature, const DeviceMember& member) {
  if (!IsReduction(signature.operation)) return 0;
  const ReductionPlan plan(signature, member);
  int64_t segment = 0, chunk = 0;
  for (int local = 0; local < plan.inner(); ++local) {
    segment = std::max(segment, plan.SegmentOffsets(local).back());
  }
  for (int rank = 0; rank < member.size; ++rank) {
    chunk = std::max(chunk, plan.Bytes(plan.ChunkOf(rank).count));
  }
  const int chunks = plan.outer() - 1 + (signature.operation == Operation::kReduce ? 1 : 0);
  return (plan.inner() - 1) * AlignedBytes(segment) + chunks * AlignedBytes(chunk);
}

void QueueExactReduction(const Call& call, const DeviceMember& member, std::byte* held,
                         DeviceStream& stream, DevicePeers& peers) {
  if (call.signature.count == 0) return;
  MemberReduction(call, member, held, stream, peers).Queue();
}

}  // namespace lockstep
