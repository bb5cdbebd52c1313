#include "core/base/sum_tree.h"

#include <algorithm>
#include <cstddef>

#include "glog/logging.h"

namespace lockstep {

bool AreHalves(const TreeNode& left, const TreeNode& right, int64_t leaves) {
  DCHECK_EQ(left.end(), right.first);
  // A left half is a range of 2^k leaves that starts at a multiple of 2^(k+1); its right half ends
  // after as many leaves more, or with the tree.
  const bool is_left = (left.count & (left.count - 1)) == 0 && left.first % (2 * left.count) == 0;
  return is_left && right.end() == std::min(right.first + left.count, leaves);
}

int64_t TreeStack::Push() {
  DCHECK_LT(next_, leaves_);
  TreeNode node{next_++, 1};
  int64_t merged = 0;
  while (!nodes_.empty() && AreHalves(nodes_.back(), node, leaves_)) {
    node = {nodes_.back().first, nodes_.back().count + node.count};
    nodes_.pop_back();
    ++merged;
  }
  nodes_.push_back(node);
  return merged;
}

int64_t DeepestStack(int64_t leaves, int64_t first, int64_t end) {
  TreeStack stack(leaves, first);
  size_t deepest = 0;
  for (int64_t leaf = first; leaf < end; ++leaf) {
    stack.Push();
    deepest = std::max(deepest, stack.nodes().size());
  }
  return static_cast<int64_t>(deepest);
}

std::vector<TreeAddition> TreeAdditions(const std::vector<TreeNode>& nodes, int64_t leaves) {
  struct Value {
    TreeNode node;
    int64_t index;
  };
  std::vector<Value> stack;
  std::vector<TreeAddition> additions;
  for (size_t i = 0; i < nodes.size(); ++i) {
    Value value{nodes[i], static_cast<int64_t>(i)};
    while (!stack.empty() && AreHalves(stack.back().node, value.node, leaves)) {
      const Value& left = stack.back();
      additions.push_back({left.index, value.index});
      value = {{left.node.first, left.node.count + value.node.count}, left.index};
      stack.pop_back();
    }
    stack.push_back(value);
  }
  CHECK(stack.size() <= 1) << "nodes that are not all of a tree over " << leaves << " leaves";
  return additions;
}

}  // namespace lockstep
