#include "core/base/sum_tree.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

// The definition, word by word: "splits at the largest power of two below n".
std::string Expression(int64_t first, int64_t count) {
  if (count == 1) return std::to_string(first);
  const auto left = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(count - 1)));
  return "(" + Expression(first, left) + "+" + Expression(first + left, count - left) + ")";
}

// The value of each node as the expression that made it.
class Expressions {
 public:
  Expressions(int64_t leaves, int64_t first) : stack_(leaves, first), leaf_(first) {}

  void Push() {
    std::string value = std::to_string(leaf_++);
    for (int64_t merged = stack_.Push(); merged > 0; --merged) {
      value = "(" + values_.back() + "+" + value + ")";
      values_.pop_back();
    }
    values_.push_back(value);
  }
  const TreeStack& stack() const { return stack_; }
  const std::vector<std::string>& values() const { return values_; }

 private:
  TreeStack stack_;
  int64_t leaf_;
  std::vector<std::string> values_;
};

TEST(SumTreeTest, AStackMakesTheTree) {
  for (int64_t leaves = 1; leaves <= 70; ++leaves) {
    Expressions sum(leaves, 0);
    for (int64_t leaf = 0; leaf < leaves; ++leaf) sum.Push();
    EXPECT_THAT(sum.values(), ElementsAre(Expression(0, leaves)));
  }
  EXPECT_EQ(Expression(0, 7), "(((0+1)+(2+3))+((4+5)+6))");
}

TEST(SumTreeTest, PartsOfTheLeavesMakeTheSameTree) {
  for (const int64_t leaves : {1, 2, 3, 6, 7, 12, 13, 32, 45}) {
    for (int64_t parts = 1; parts <= 5; ++parts) {
      std::vector<TreeNode> nodes;
      std::vector<std::string> values;
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t first = leaves * part / parts, end = leaves * (part + 1) / parts;
        Expressions sum(leaves, first);
        for (int64_t leaf = first; leaf < end; ++leaf) {
          sum.Push();
          EXPECT_LE(static_cast<int64_t>(sum.values().size()), DeepestStack(leaves, first, end));
        }
        nodes.insert(nodes.end(), sum.stack().nodes().begin(), sum.stack().nodes().end());
        values.insert(values.end(), sum.values().begin(), sum.values().end());
      }
      for (const auto& [left, right] : TreeAdditions(nodes, leaves)) {
        values[left] = "(" + values[left] + "+" + values[right] + ")";
      }
      EXPECT_EQ(values[0], Expression(0, leaves)) << parts << " parts";
    }
  }
}

TEST(SumTreeTest, ABinaryCounterKnowsTheStack) {
  for (int64_t leaves = 1; leaves <= 130; ++leaves) {
    TreeStack stack(leaves);
    int64_t most = 0;
    for (int64_t leaf = 0; leaf < leaves; ++leaf) {
      most = std::max(most, static_cast<int64_t>(stack.nodes().size()));
      EXPECT_EQ(NodesBefore(leaf), static_cast<int64_t>(stack.nodes().size())) << leaf;
      EXPECT_EQ(MergedWith(leaf, leaves), stack.Push()) << leaf << " of " << leaves;
    }
    EXPECT_EQ(MostNodesBefore(leaves), most);
  }
}

TEST(SumTreeTest, AStackIsAsDeepAsItsNumberOfLeavesHasBits) {
  EXPECT_EQ(DeepestStack(32, 0, 16), 4);
  EXPECT_EQ(DeepestStack(32, 16, 32), 4);
  EXPECT_EQ(DeepestStack(7, 0, 7), 2);
  EXPECT_EQ(DeepestStack(1, 0, 1), 1);
}

TEST(SumTreeTest, AlignedRunsAreNodesWhateverTheNumberOfLeaves) {
  EXPECT_TRUE(AreHalves({0, 4}, {4, 4}, 100));
  EXPECT_TRUE(AreHalves({0, 4}, {4, 3}, 7));
  EXPECT_FALSE(AreHalves({4, 4}, {8, 4}, 100));  // [4, 8) belongs to [0, 8)
  EXPECT_FALSE(AreHalves({0, 4}, {4, 2}, 7));    // [4, 7) is not complete
  EXPECT_FALSE(AreHalves({0, 3}, {3, 1}, 4));
}

}  // namespace
}  // namespace lockstep
