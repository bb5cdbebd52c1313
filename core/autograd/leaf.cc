#include "core/autograd/leaf.h"

#include "core/base/sum_tree.h"
#include "core/tensor/allocator.h"
#include "glog/logging.h"

namespace lockstep {

void Leaf::MakeAccumulators(Kernels& kernels, int64_t leaves) {
  further_.resize(static_cast<size_t>(leaves - 1));
  for (Leaf& accumulator : further_) {
    accumulator.gradient = kernels.Empty(value.shape(), gradient_dtype, MemoryClass::kGradients);
  }
}

int64_t Leaf::accumulator_bytes() const {
  int64_t bytes = 0;
  for (const Leaf& accumulator : further_) bytes += AlignedBytes(accumulator.gradient.bytes());
  return bytes;
}

Leaf::Destination Leaf::NextContributionOf(int64_t leaf, Kernels& kernels) {
  if (leaf == 0) return NextContribution(kernels);
  return further_.at(static_cast<size_t>(leaf - 1)).NextContribution(kernels);
}

Tensor Leaf::SumAccumulators(Kernels& kernels, int64_t first, int64_t count, int64_t stride) {
  const auto at = [this](int64_t leaf) {
    Leaf& accumulator = leaf == 0 ? *this : further_.at(static_cast<size_t>(leaf - 1));
    CHECK(accumulator.has_gradient()) << "a leaf without its contribution";
    return accumulator.gradient;
  };
  std::vector<TreeNode> leaves;
  for (int64_t i = 0; i < count; ++i) leaves.push_back({.first = i});
  for (const TreeAddition& addition : TreeAdditions(leaves, count)) {
    const Tensor sum = at(first + addition.left * stride);
    kernels.Add(sum, at(first + addition.right * stride), sum);
  }
  return at(first);
}

}  // namespace lockstep
