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
//   sums.Sum([&](int part, int64_t block, int64_t leaf, float* value) { ...write the leaf... },
//            [&](int64_t block, const float* sum) { ...take the sum... });
//
// Each thread takes a run of (sum, leaf) pairs, leaf by leaf, and keeps a stack of nodes of the
// tree in workspace: as many values as the tree is deep, not as there are leaves.
class TreeLeaves {
 public:
  TreeLeaves(Allocator& allocator, int64_t sums, int64_t leaves, int64_t width)
      : sums_(sums), leaves_(leaves), width_(width), parts_(ParallelParts(sums * leaves, 1)) {
    for (int part = 0; part < parts_; ++part) {
      int64_t whole = -1;  // the values of a part's whole sums, which take turns
      for (Run run : RunsOf(part)) {
        run.first_value = run.IsWhole(leaves) && whole >= 0 ? whole : values_;
        if (run.first_value == values_) {
          // The open leaf lies above the nodes that it is merged with.
          values_ += DeepestStack(leaves, run.first, run.end) + (run.end > run.first + 1 ? 1 : 0);
        }
        if (run.IsWhole(leaves)) whole = run.first_value;
        runs_.push_back(std::move(run));
      }
    }
    memory_ = Tensor::Empty(allocator, {values_, width}, DType::kF32, MemoryClass::kWorkspace);
  }

  // Number of threads that run leaves: `part` is below it.
  int parts() const { return parts_; }

  // Calls make(part, sum, leaf, value) for each leaf of each sum, which writes value[width], then
  // finish(sum, value) once a sum. Both are called on several threads at the same time.
  template <typename Make, typename Finish>
  void Sum(Make&& make, Finish&& finish) {
    ParallelFor(parts_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        for (Run& run : runs_) {
          if (run.part != part) continue;
          TreeStack stack(leaves_, run.first);
          int64_t nodes = 0;
          for (int64_t leaf = run.first; leaf < run.end; ++leaf, ++nodes) {
            make(static_cast<int>(part), run.sum, leaf, Value(run, nodes));
            for (int64_t merged = stack.Push(); merged > 0; --merged, --nodes) {
              Add(Value(run, nodes), 0, width_, Value(run, nodes - 1));
            }
          }
          run.nodes = stack.nodes();
          if (run.IsWhole(leaves_)) finish(run.sum, Value(run, 0));
        }
      }
    });
    if (!SkipsLoops()) Join(finish);
  }

 private:
  // Consecutive leaves of one sum that one thread adds up.
  struct Run {
    int part;
    int64_t sum, first, end;
    int64_t first_value = 0;
    std::vector<TreeNode> nodes = {};

    bool IsWhole(int64_t leaves) const { return first == 0 && end == leaves; }
  };

  std::vector<Run> RunsOf(int part) const {
    const int64_t items = sums_ * leaves_;
    const int64_t begin = items * part / parts_, end = items * (part + 1) / parts_;
    std::vector<Run> runs;
    for (int64_t item = begin; item < end;) {
      const int64_t sum = item / leaves_, stop = std::min(end, (sum + 1) * leaves_);
      runs.push_back({part, sum, item - sum * leaves_, stop - sum * leaves_});
      item = stop;
    }
    return runs;
  }

  float* Value(const Run& run, int64_t node) const {
    return memory_.data<float>() + (run.first_value + node) * width_;
  }

  static void Add(const float* from, int64_t begin, int64_t end, float* to) {
    for (int64_t i = begin; i < end; ++i) to[i] += from[i];
  }

  // Adds up the sums whose leaves were divided among threads.
  template <typename Finish>
  void Join(Finish&& finish) {
    for (size_t i = 0; i < runs_.size();) {
      const size_t first = i;
      std::vector<TreeNode> nodes;
      std::vector<float*> values;
      for (; i < runs_.size() && runs_[i].sum == runs_[first].sum; ++i) {
        for (size_t node = 0; node < runs_[i].nodes.size(); ++node) {
          nodes.push_back(runs_[i].nodes[node]);
          values.push_back(Value(runs_[i], static_cast<int64_t>(node)));
        }
      }
      if (i == first + 1) continue;  // whole: it is finished
      const std::vector<TreeAddition> additions = TreeAdditions(nodes, leaves_);
      ParallelFor(width_, 1 << 13, [&](int64_t begin, int64_t end) {
        for (const TreeAddition& addition : additions) {
          Add(values[addition.right], begin, end, values[addition.left]);
        }
      });
      finish(runs_[first].sum, values[0]);
    }
  }

  int64_t sums_, leaves_, width_;
  int parts_;
  std::vector<Run> runs_;  // by sum, then by first leaf
  int64_t values_ = 0;
  Tensor memory_;
};

}  // namespace lockstep::cpu
