// Sums of large leaves, such as the weight gradients of groups of samples, along the tree of
// core/base/sum_tree.h. Leaves are divided among threads; the sums' bits do not depend on how.

#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>  // std::move
#include <vector>

#include "core/base/parallel.h"
#include "core/base/sum_tree.h"
#include "core/kernels/kernels.h"

namespace lockstep::cpu {

// Several sums over the same number of leaves each. Every value is an array of `width` floats.
//
//   TreeLeaves sums(allocator, blocks, leaves, width);
//   sums.Sum([&](int chunk, int64_t block, int64_t leaf, float* value) { ...write the leaf... },
//            [&](int64_t block, const float* sum) { ...take the sum... });
//
// Each thread takes a range of (sum, leaf) pairs, leaf by leaf, and keeps a stack of nodes of the
// tree in workspace: as many values as the tree is deep, not as there are leaves.
class TreeLeaves {
 public:
  TreeLeaves(Allocator& allocator, int64_t sums, int64_t leaves, int64_t width)
      : sums_(sums), leaves_(leaves), width_(width), chunks_(ParallelChunks(sums * leaves, 1)) {
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      int64_t whole = -1;  // the values of a chunk's whole sums, which take turns
      for (LeafRange range : RangesOf(chunk)) {
        range.first_value = range.IsWhole(leaves) && whole >= 0 ? whole : values_;
        if (range.first_value == values_) {
          // The open leaf lies above the nodes that it is merged with.
          values_ +=
              DeepestStack(leaves, range.first, range.end) + (range.end > range.first + 1 ? 1 : 0);
        }
        if (range.IsWhole(leaves)) whole = range.first_value;
        ranges_.push_back(std::move(range));
      }
    }
    memory_ = Tensor::Empty(allocator, {values_, width}, DType::kF32, MemoryClass::kWorkspace);
  }

  // Number of threads that run leaves: `chunk` is below it.
  int chunks() const { return chunks_; }

  // Calls make(chunk, sum, leaf, value) for each leaf of each sum, which writes value[width], then
  // finish(sum, value) once a sum. Both are called on several threads at the same time.
  template <typename Make, typename Finish>
  void Sum(Make&& make, Finish&& finish) {
    ParallelFor(chunks_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        for (LeafRange& range : ranges_) {
          if (range.chunk != chunk) continue;
          TreeStack stack(leaves_, range.first);
          int64_t nodes = 0;
          for (int64_t leaf = range.first; leaf < range.end; ++leaf, ++nodes) {
            make(static_cast<int>(chunk), range.sum, leaf, Value(range, nodes));
            for (int64_t merged = stack.Push(); merged > 0; --merged, --nodes) {
              Add(Value(range, nodes), 0, width_, Value(range, nodes - 1));
            }
          }
          range.nodes = stack.nodes();
          if (range.IsWhole(leaves_)) finish(range.sum, Value(range, 0));
        }
      }
    });
    if (!SkipsLoops()) Join(finish);
  }

 private:
  // Consecutive leaves of one sum that one thread adds up.
  struct LeafRange {
    int chunk;
    int64_t sum, first, end;
    int64_t first_value = 0;
    std::vector<TreeNode> nodes = {};

    bool IsWhole(int64_t leaves) const { return first == 0 && end == leaves; }
  };

  std::vector<LeafRange> RangesOf(int chunk) const {
    const int64_t items = sums_ * leaves_;
    const int64_t begin = items * chunk / chunks_, end = items * (chunk + 1) / chunks_;
    std::vector<LeafRange> ranges;
    for (int64_t item = begin; item < end;) {
      const int64_t sum = item / leaves_, stop = std::min(end, (sum + 1) * leaves_);
      ranges.push_back({chunk, sum, item - sum * leaves_, stop - sum * leaves_});
      item = stop;
    }
    return ranges;
  }

  float* Value(const LeafRange& range, int64_t node) const {
    return memory_.data<float>() + (range.first_value + node) * width_;
  }

  static void Add(const float* from, int64_t begin, int64_t end, float* to) {
    for (int64_t i = begin; i < end; ++i) to[i] += from[i];
  }

  // Adds up the sums whose leaves were divided among threads.
  template <typename Finish>
  void Join(Finish&& finish) {
    for (size_t i = 0; i < ranges_.size();) {
      const size_t first = i;
      std::vector<TreeNode> nodes;
      std::vector<float*> values;
      for (; i < ranges_.size() && ranges_[i].sum == ranges_[first].sum; ++i) {
        for (size_t node = 0; node < ranges_[i].nodes.size(); ++node) {
          nodes.push_back(ranges_[i].nodes[node]);
          values.push_back(Value(ranges_[i], static_cast<int64_t>(node)));
        }
      }
      if (i == first + 1) continue;  // whole: it is finished
      const std::vector<TreeAddition> additions = TreeAdditions(nodes, leaves_);
      ParallelFor(width_, 1 << 13, [&](int64_t begin, int64_t end) {
        for (const TreeAddition& addition : additions) {
          Add(values[addition.right], begin, end, values[addition.left]);
        }
      });
      finish(ranges_[first].sum, values[0]);
    }
  }

  int64_t sums_, leaves_, width_;
  int chunks_;
  std::vector<LeafRange> ranges_;  // by sum, then by first leaf
  int64_t values_ = 0;
  Tensor memory_;
};

}  // namespace lockstep::cpu
