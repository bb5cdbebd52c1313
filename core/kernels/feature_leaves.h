// Sums over feature leaves (docs/numerics.md, "Feature leaves") from slices of tensors: what the
// plain kernels are made of, and differentiable operations that no kernel fuses.

#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/sum_tree.h"
#include "core/kernels/kernels.h"

namespace lockstep {

// Number of features in a leaf's ranges.
int64_t FeaturesOf(const std::vector<Range>& leaf);

// Whether one leaf has all of so many features, or nothing is cut: there is nothing to slice.
bool IsWhole(const FeatureLeaves& leaves, int64_t features);

// Columns of x [..., width] in the order of the ranges: [..., columns]; and back into their places.
Tensor TakeColumns(Kernels& kernels, const Tensor& x, const std::vector<Range>& columns);
void PutColumns(Kernels& kernels, const Tensor& from, const std::vector<Range>& columns,
                const Tensor& x);
// The same for indices of the first dimension.
Tensor TakeRows(Kernels& kernels, const Tensor& x, const std::vector<Range>& rows);
void PutRows(Kernels& kernels, const Tensor& from, const std::vector<Range>& rows, const Tensor& x);

// A slice of a weight's gradient for a kernel that knows no slices. It starts as what the gradient
// holds where the kernel adds to that; Put brings it back.
class GradientSlice {
 public:
  enum class Dimension { kFirst, kLast };
  // `whole` may be undefined: then so is the slice.
  GradientSlice(Kernels& kernels, const Tensor& whole, Dimension dimension,
                const std::vector<Range>& ranges, Write write);

  const Tensor& tensor() const { return slice_; }
  void Put() const;

 private:
  Kernels& kernels_;
  Tensor whole_, slice_;
  Dimension dimension_;
  const std::vector<Range>& ranges_;
};

// The sum of make(leaf) along the tree over so many leaves, in the memory of one of them; each node
// is rounded to the dtype.
template <typename Make>
Tensor SumOverLeaves(Kernels& kernels, int64_t leaves, Make&& make) {
  TreeStack stack(leaves);
  std::vector<Tensor> nodes;
  for (int64_t leaf = 0; leaf < leaves; ++leaf) {
    Tensor value = make(leaf);
    for (int64_t merged = stack.Push(); merged > 0; --merged) {
      kernels.Add(nodes.back(), value, value);
      nodes.pop_back();
    }
    nodes.push_back(std::move(value));
  }
  return nodes.at(0);
}

// Writes that sum to `y`, from the leaves that have features; -0.0 where none has any. Leaves
// without features must be the last ones: they add nothing.
template <typename Make>
void SumFeatureLeaves(Kernels& kernels, const FeatureLeaves& leaves, const Tensor& y, Make&& make) {
  int64_t filled = 0;
  for (const std::vector<Range>& leaf : leaves) filled += FeaturesOf(leaf) > 0 ? 1 : 0;
  if (filled == 0) return kernels.Fill(y, -0.0f);
  kernels.Copy(SumOverLeaves(kernels, filled, [&](int64_t i) { return make(leaves[i]); }), y);
}

}  // namespace lockstep
