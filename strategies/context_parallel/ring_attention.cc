#include "strategies/context_parallel/ring_attention.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/base/sum_tree.h"

namespace lockstep {
namespace {

// Values of the tree over ranks, which arrive in any order. Two of them are added as soon as they
// are the halves of a third.
template <typename Value>
class TreeOfRanks {
 public:
  // add(left, right) adds a value to the one on its left.
  using Add = std::function<void(const Value& left, const Value& right)>;
  TreeOfRanks(int ranks, Add add) : ranks_(ranks), add_(std::move(add)) {}

  void Arrive(int rank, Value value) {
    TreeNode node = {.first = rank};
    for (bool grows = true; std::exchange(grows, false);) {
      const auto right = nodes_.find(node.end());
      if (right != nodes_.end() && AreHalves(node, right->second.node, ranks_)) {
        add_(value, right->second.value);
        node.count += right->second.node.count;
        nodes_.erase(right);
        grows = true;
        continue;
      }
      const auto above = nodes_.upper_bound(node.first);
      if (above == nodes_.begin()) continue;
      const auto left = std::prev(above);
      if (left->second.node.end() != node.first || !AreHalves(left->second.node, node, ranks_)) {
        continue;
      }
      add_(left->second.value, value);
      node = {.first = left->second.node.first, .count = left->second.node.count + node.count};
      value = left->second.value;
      nodes_.erase(left);
      grows = true;
    }
    nodes_.emplace(node.first, Entry{node, std::move(value)});
  }
  // After all ranks' values.
  const Value& sum() const { return nodes_.begin()->second.value; }

 private:
  struct Entry {
    TreeNode node;
    Value value;
  };
  const int ranks_;
  const Add add_;
  std::map<int64_t, Entry> nodes_;  // by first rank
};

}  // namespace

RingAttention::RingAttention(Communicator& ranks) : ContextRanks(ranks) {
  std::vector<Communicator::Route> routes;
  for (int from = 0; from < size(); ++from) routes.push_back({from, (from + 1) % size()});
  ThrowIfError(ranks.ConnectRoutes(routes));
}

void RingAttention::ForKeys(Kernels& kernels, const Tensor& qkv, int64_t query_width,
                            const std::function<void(int rank, const Tensor& keys)>& run) {
  const Shape shape = qkv.shape().With(2, qkv.shape()[2] - query_width);
  const auto make = [&] { return kernels.Empty(shape, qkv.dtype(), MemoryClass::kCommunication); };
  Tensor keys = make(), coming = make();
  kernels.CopyColumns(qkv, query_width, shape[2], keys, 0);
  const int next = (index() + 1) % size(), before = (index() + size() - 1) % size();
  for (int step = 0; step < size(); ++step) {
    const bool is_last = step + 1 == size();
    Work sent, received;
    if (!is_last) {
      sent = ranks().Send(keys, next, kKeysAndValues);
      received = ranks().Recv(coming, before, kKeysAndValues);
    }
    run((index() + size() - step) % size(), keys);
    if (is_last) break;
    ThrowIfError(sent.Wait());
    ThrowIfError(received.Wait());
    std::swap(keys, coming);
  }
}

Variable RingAttention::Attend(Pass& pass, const Variable& qkv, const Attention& attention) {
  Kernels& k = pass.kernels();
  const TokenOrder& tokens = pass.tokens;
  const int64_t sequences = qkv.shape()[0], time = qkv.shape()[1];
  const int64_t width = attention.heads * attention.head_width;
  const auto part_of = [leaves = tokens.leaves, own = tokens.first_leaf(),
                        count = tokens.held_leaves()](int rank) {
    return AttentionPart{.leaves = leaves, .queries = {own, count}, .keys = {rank * count, count}};
  };
  const Tensor y = k.Empty({sequences, time, width}, qkv.value.dtype());
  const Tensor log_sum_exp = k.Empty({sequences, attention.heads, time});
  {
    TreeOfRanks<AttentionSums> sums(size(),
                                    [&](const AttentionSums& left, const AttentionSums& right) {
                                      k.AddAttention(attention, right, left);
                                    });
    ForKeys(k, qkv.value, width, [&](int rank, const Tensor& keys) {
      const AttentionSums part = {
          .largest = k.Empty(log_sum_exp.shape(), DType::kF32, MemoryClass::kWorkspace),
          .sums = k.Empty(log_sum_exp.shape(), DType::kF32, MemoryClass::kWorkspace),
          .outputs = k.Empty(y.shape(), DType::kF32, MemoryClass::kWorkspace)};
      k.AttentionOfPart(attention, part_of(rank), qkv.value, keys, part);
      sums.Arrive(rank, part);
    });
    k.FinishAttention(attention, sums.sum(), y, log_sum_exp);
  }
  Variable out = pass.tape.Result(y, qkv.needs_gradient());
  pass.tape.Record(out, [this, &k, part_of, qkv, attention, y, log_sum_exp,
                         width](const Tensor& dy) {
    const Shape own = qkv.shape().With(2, qkv.shape()[2] - width);
    const int64_t chunk = own.elements();
    const Tensor dqkv = k.EmptyLike(qkv.value);
    const Tensor all_dkeys = k.Empty({1, size() * chunk}, dqkv.dtype(), MemoryClass::kWorkspace);
    const Tensor dkeys = k.Empty(own, dqkv.dtype(), MemoryClass::kWorkspace);
    TreeOfRanks<Tensor> dqueries(
        size(), [&](const Tensor& left, const Tensor& right) { k.Add(left, right, left); });
    ForKeys(k, qkv.value, width, [&](int rank, const Tensor& keys) {
      const Tensor part = k.Empty(y.shape(), dqkv.dtype(), MemoryClass::kWorkspace);
      k.AttentionOfPartBackward(attention, part_of(rank), qkv.value, keys, y, log_sum_exp, dy, part,
                                dkeys);
      k.CopyColumns(dkeys.Reshape({1, chunk}), 0, chunk, all_dkeys, rank * chunk);
      dqueries.Arrive(rank, part);
    });
    k.CopyColumns(dqueries.sum(), 0, width, dqkv, 0);
    ThrowIfError(
        ranks().ReduceScatter(all_dkeys, dkeys, ReduceOp::kSum, kKeyAndValueGradients).Wait());
    k.CopyColumns(dkeys, 0, own[2], dqkv, width);
    qkv.gradient->Add(k, dqkv);
  });
  return out;
}

}  // namespace lockstep
