#include "core/comm/device/exact_reduction.h"

#include <functional>
#include <vector>

#include "core/comm/reduce.h"
#include "core/tensor/allocator.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

// What a member's part does, to be done step by step, all members in turn.
struct Steps final : DeviceStream, DevicePeers {
  std::vector<std::function<void()>> all;
  std::vector<std::vector<PeerMessage>> exchanges;

  void Await(const DeviceMark&) override {}
  DeviceMarkPtr Mark() override { return nullptr; }
  void Copy(std::byte*, const std::byte*, int64_t) override {}
  void Swap(std::byte*, std::byte*, int64_t) override {}
  void Reduce(DType dtype, ReduceOp op, absl::Span<const std::byte* const> inputs,
              absl::Span<std::byte* const> outputs, int64_t begin, int64_t end) override {
    all.push_back([=, from = std::vector<const std::byte*>(inputs.begin(), inputs.end()),
                   to = std::vector<std::byte*>(outputs.begin(), outputs.end())] {
      ReduceByTree(dtype, op, from, to, begin, end);
    });
  }
  void Exchange(absl::Span<const PeerMessage> messages) override {
    exchanges.emplace_back(messages.begin(), messages.end());
    all.push_back(nullptr);
  }
};

// Bytes that each member of an all-reduce of 1024 floats sends to other nodes.
int64_t BytesBetweenNodes(int size, int ranks_a_node) {
  CpuAllocator allocator;
  int64_t bytes = 0;
  const Tensor tensor = Tensor::Empty(allocator, {1024}, DType::kF32, MemoryClass::kWorkspace);
  Call call;
  call.signature = {.operation = Operation::kAllReduce, .dtype = DType::kF32, .count = 1024};
  call.input = call.output = tensor;
  const DeviceMember member = {.size = size, .rank = 1, .ranks_a_node = ranks_a_node};
  std::vector<std::byte> held(ExactReductionBytes(call.signature, member));
  Steps steps;
  QueueExactReduction(call, member, held.data(), steps, steps);
  for (const auto& messages : steps.exchanges) {
    for (const PeerMessage& message : messages) {
      EXPECT_NE(message.member, member.rank);
      if (message.member / ranks_a_node != 0) bytes += message.send_bytes;
      // Nothing is received outside of what is held, and the tensor.
      const bool in_held = message.receive >= held.data() &&
                           message.receive + message.receive_bytes <= held.data() + held.size();
      const bool in_tensor = message.receive >= tensor.raw() &&
                             message.receive + message.receive_bytes <= tensor.raw() + 4096;
      EXPECT_TRUE(in_held || in_tensor);
    }
  }
  return bytes;
}

// A node's sums travel once between nodes, and the totals come back once: an eighth of what eight
// ranks on a node would send by themselves.
TEST(ExactReductionTest, BetweenNodesTravelNodeSumsAlone) {
  EXPECT_EQ(BytesBetweenNodes(16, 8), 2 * 4096 / 16);
  EXPECT_EQ(BytesBetweenNodes(8, 4), 2 * 4096 / 8);
  // Three ranks are no node of the tree: all go to all. Chunks have 704 bytes, the last one 576.
  EXPECT_EQ(BytesBetweenNodes(6, 3), (704 + 704 + 576) + 3 * 704);
}

TEST(ExactReductionTest, NodesHaveEquallyManyConsecutiveRanks) {
  EXPECT_EQ(RanksANode({7, 7, 7, 7}), 4);
  EXPECT_EQ(RanksANode({7, 7, 9, 9}), 2);
  EXPECT_EQ(RanksANode({7, 9, 3}), 1);
  EXPECT_EQ(RanksANode({7, 7, 9}), 1);
  EXPECT_EQ(RanksANode({7, 7, 9, 9, 9, 9}), 1);  // node 9 has four
  EXPECT_EQ(RanksANode({7, 9, 7, 9}), 1);
}

TEST(ExactReductionTest, HoldsWhatTheFormulaSays) {
  const auto held = [](Operation operation, ReduceOp op, int ranks_a_node) {
    return ExactReductionBytes(
        {.operation = operation, .dtype = DType::kF32, .reduce_op = op, .count = 1024},
        {.size = 8, .rank = 3, .ranks_a_node = ranks_a_node});
  };
  constexpr int64_t kBytes = 4096;
  EXPECT_EQ(held(Operation::kAllReduce, ReduceOp::kSum, 8), kBytes * 7 / 8);
  EXPECT_EQ(held(Operation::kReduceScatter, ReduceOp::kSum, 1), kBytes * 7 / 8);
  EXPECT_EQ(held(Operation::kAllReduce, ReduceOp::kSum, 4), kBytes * 3 / 4 + kBytes / 8);
  EXPECT_EQ(held(Operation::kAllReduce, ReduceOp::kAverage, 4), kBytes * 7 / 8);
  EXPECT_EQ(held(Operation::kReduce, ReduceOp::kSum, 8), kBytes * 7 / 8 + kBytes / 8);
  EXPECT_EQ(held(Operation::kBroadcast, ReduceOp::kSum, 4), 0);
}

}  // namespace
}  // namespace lockstep
