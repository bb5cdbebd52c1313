// The order in which sums are made (docs/numerics.md, "The tree").
//
// A sum over n leaves is a binary tree: it splits at the largest power of two below n, and both
// sides split again in the same way. Each aligned range of 2^k leaves (its start a multiple of 2^k)
// is a node of the tree, so whoever holds such a range sums it alone, whatever n is.

#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace lockstep {

// Leaves [first, first + count) of a tree, summed.
struct TreeNode {
  int64_t first = 0;
  int64_t count = 1;

  int64_t end() const { return first + count; }
  bool operator==(const TreeNode&) const = default;
};

// Whether two nodes of the tree over `leaves` leaves are the halves of a third one. Requires
// left.end() == right.first.
bool AreHalves(const TreeNode& left, const TreeNode& right, int64_t leaves);

// Adds up a range of leaves that arrive in order, as a stack of nodes. It knows numbers of leaves
// alone; the caller holds a value for each node on the stack.
//
//   TreeStack stack(leaves);
//   for (leaf : leaves) {
//     int64_t merged = stack.Push();
//     value = leaf; then value += the `merged` topmost values, from the top down;
//     pop these values, push `value`;
//   }
//
// After the last leaf of the whole tree one value is left. A range of only some of the leaves
// leaves one value for each of nodes().
class TreeStack {
 public:
  // The range starts at leaf `first` of a tree over `leaves` leaves.
  explicit TreeStack(int64_t leaves, int64_t first = 0) : leaves_(leaves), next_(first) {}

  // Takes the next leaf. Returns how many nodes on top of the stack are merged with it.
  int64_t Push();

  const std::vector<TreeNode>& nodes() const { return nodes_; }

 private:
  int64_t leaves_, next_;
  std::vector<TreeNode> nodes_;
};

// What a stack that starts at leaf 0 would say of leaf `leaf`: how many nodes lie on it when the
// leaf arrives, at most MostNodesBefore of any leaf, and how many are merged with it in the tree
// over `leaves` leaves. The stack is a binary counter of leaves, whose last one completes all
// nodes.
inline int64_t NodesBefore(int64_t leaf) { return std::popcount(static_cast<uint64_t>(leaf)); }
inline int64_t MergedWith(int64_t leaf, int64_t leaves) {
  return leaf + 1 == leaves ? NodesBefore(leaf) : std::countr_one(static_cast<uint64_t>(leaf));
}
inline int64_t MostNodesBefore(int64_t leaves) {
  return std::bit_width(static_cast<uint64_t>(leaves)) - 1;
}

// The most values that a TreeStack over leaves [first, end) holds at a time.
int64_t DeepestStack(int64_t leaves, int64_t first, int64_t end);

// One addition of two neighbouring values: the value at index `left` becomes the sum of itself and
// the value at index `right`.
struct TreeAddition {
  int64_t left = 0, right = 0;
  bool operator==(const TreeAddition&) const = default;
};

// The additions, in order, that make value 0 the sum of all values, where value i is that of
// nodes[i]. Requires nodes of the tree over `leaves` leaves, in order, which together are all of
// it.
std::vector<TreeAddition> TreeAdditions(const std::vector<TreeNode>& nodes, int64_t leaves);

}  // namespace lockstep
